"""The client's side: a question in, an answer out, what is private stays on its own disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from coterie.core.client import Client
from coterie.core.layout import Layout
from coterie.core.rng import stream
from coterie.engines.flower import messages
from coterie.engines.flower.memory import Memory
from coterie.engines.front import not_finite
from coterie.tasks.wire import decode

Setup = Mapping[str, Any]


class Host(Protocol):
    """Whoever owns the data of one client, and knows how to read them."""

    @property
    def name(self) -> str:
        """The client's name; its random numbers follow from it."""

    def introduce(self, setup: Setup) -> Mapping[str, Any]:
        """`samples`, `classes` and `shape`: what a server must know to begin."""

    def layout(self, setup: Setup) -> Layout:
        """The network that the setup names, as a row."""

    def client(self, setup: Setup, round: int) -> Client:
        """The data, as they are in a round."""


def handle_hello(content: RecordDict, host: Host) -> RecordDict:
    """Say who this is."""
    setup = json.loads(str(content.config_records["hello"]["setup"]))
    facts: dict[str, Any] = {"name": host.name, "error": "", **host.introduce(setup)}
    return RecordDict({"hello": ConfigRecord(facts)})


def handle_task(content: RecordDict, host: Host, state: Path) -> RecordDict:
    """Answer one question. Answering it again gives the same answer and the same memory."""
    q = messages.asked(content)
    at = q.address
    try:
        if at.client != host.name:
            raise ValueError(f"the question is for {at.client}, this is {host.name}")
        setup = json.loads(q.setup)
        train = at.purpose == "train"
        memory = Memory(state / digest(host.name) / digest(at.experiment))
        held = memory.before(at.round, at.call, train=train, void=q.void)
        client = replace(host.client(setup, at.round), memory=held)
        rng = stream(q.seed, at.purpose, at.round, at.call, at.client)
        task, layout = decode(q.task), host.layout(setup)
        torch.set_num_threads(int(setup.get("threads", 1)))
        reply = task(client, q.models, q.sent, layout, rng)
        if train and reply.keep and not not_finite(reply):
            kept = {**held, **reply.keep}
            memory.keep(at.round, at.call, kept, floor=q.floor, void=q.void)
        return messages.answering(at, reply, len(client))
    except Exception as error:  # told to the server, which leaves this client out of the round
        return messages.failing(at, f"{type(error).__name__}: {error}")


def digest(name: str) -> str:
    """A folder's name for any text: nothing that came over a wire becomes part of a path."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def client_app(host_of: Callable[[Context], tuple[Host, Path]]) -> ClientApp:
    """A Flower client that answers coterie's questions; `host_of` knows whose data, and where
    its memory is kept."""
    app = ClientApp()

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        return Message(handle_hello(message.content, host_of(context)[0]), reply_to=message)

    def task(message: Message, context: Context) -> Message:
        return Message(handle_task(message.content, *host_of(context)), reply_to=message)

    app.train("task")(task)
    app.evaluate("task")(task)
    return app
