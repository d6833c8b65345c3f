"""The client's side: a question in, an answer out, what is private stays on its own disk."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from coterie.core import points, storage
from coterie.core.client import Client
from coterie.core.errors import YOUR_CODE
from coterie.core.events import Listener, silence
from coterie.core.known import Known
from coterie.core.layout import Layout
from coterie.core.rng import stream
from coterie.core.types import VALIDATION, Evaluation
from coterie.engines.door import judge
from coterie.engines.flower import messages
from coterie.engines.flower.messages import Asking
from coterie.tasks.wire import decode

Setup = Mapping[str, Any]
Version = tuple[int, int]  # round and which `ask` of the round


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

    def keep_model(self, setup: Setup, row: Tensor, about: Mapping[str, Any]) -> Path | None:
        """Write the model that this client uses now, and say where; None: it keeps none."""


def handle_hello(content: RecordDict, host: Host) -> RecordDict:
    """Say who this is."""
    setup = json.loads(str(content.config_records["hello"]["setup"]))
    facts: dict[str, Any] = {"name": host.name, "error": "", **host.introduce(setup)}
    points.reach("introduced", host.name)
    return RecordDict({"hello": ConfigRecord(facts)})


def handle_task(
    content: RecordDict, host: Host, state: Path, tell: Listener = silence
) -> RecordDict:
    """Answer one question. Answering it again gives the same answer and the same memory."""
    q, began = messages.asked(content), time.perf_counter()
    at = q.address
    points.reach("asked", at.round + 1, at.client)
    about = {"purpose": at.purpose, "round": at.round + (at.purpose == "train")}
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
        k = len(q.models) if task.receives == "all" else 1
        known = Known(layout, k, len(setup.get("classes", ())), len(client), q.sent)
        fault = judge(reply, task.answer_form(known), train=train)
        if train and fault and not fault.finite:
            tell({"event": "failed", **about, "why": fault.why})
            return messages.failing(at, fault.why, diverged=True)
        if train and reply.keep and not fault:
            kept = {**held, **reply.keep}
            memory.keep(at.round, at.call, kept, floor=q.floor, void=q.void)
            points.reach("kept", at.round + 1, at.client)
        answer = messages.answering(at, reply, len(client))
    except YOUR_CODE as error:  # told to the server, which leaves this client out of the round
        why = f"{type(error).__name__}: {error}"
        tell({"event": "failed", **about, "why": why})
        return messages.failing(at, why)
    seconds = round(time.perf_counter() - began, 4)
    done = {"event": "answered", **about, "task": type(task).__name__, "seconds": seconds}
    if isinstance(task, Evaluation):
        tests = [stage != VALIDATION for stage in task.stages]
        accuracy = float(reply.value[tests][-1, 0])
        done |= {"accuracy": accuracy} if accuracy == accuracy else {}  # no samples, no accuracy
        done |= kept_model(q, host, setup, replace(client, memory=held), task)
    tell(done)
    return answer


def kept_model(
    q: Asking, host: Host, setup: Setup, client: Client, task: Evaluation
) -> dict[str, str]:
    """Let the host keep the very model that was tested, and say where; or why it could not."""
    at = q.address
    if task.receives == "all":
        return {"unsaved": "the client predicts with several models at once, and a file holds one"}
    try:
        rng = stream(q.seed, at.purpose, at.round, at.call, at.client)  # as in the test
        row = task.held(client, q.models, q.sent, host.layout(setup), rng).value
        about = {"client": at.client, "round": at.round, "experiment": at.experiment}
        path = host.keep_model(setup, row, about)
    except YOUR_CODE as error:  # a full disk must not cost the federation its answer
        return {"unsaved": f"{type(error).__name__}: {error}"}
    return {} if path is None else {"model": str(path)}


class Memory:
    """What a client keeps for itself in one experiment: on its own disk, by round and question.

    A version is written whole or not at all, and again to the same bytes: delivery is at least
    once. The versions of the last rounds stay, so that a round that is done again after a crash of
    the server starts from what was kept before it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def versions(self) -> list[Version]:
        """What is there, oldest first."""
        files = self.folder.glob("*.safetensors")
        found = (re.fullmatch(r"(-?\d+)\.(\d+)\.safetensors", file.name) for file in files)
        return sorted((int(m[1]), int(m[2])) for m in found if m)

    def before(
        self, round: int, call: int, *, train: bool = True, void: Collection[int] = ()
    ) -> dict[str, Tensor]:
        """What was kept before this question: at the end of the rounds before, and in this round.

        A test belongs to no round of training: it sees what was kept at the end of the one before.
        """
        usable = [
            v
            for v in self.versions()
            if (v[0] < round and v[0] not in void) or (train and v[0] == round and v[1] < call)
        ]
        return from_bytes(self._file(usable[-1]).read_bytes()) if usable else {}

    def keep(
        self,
        round: int,
        call: int,
        kept: Mapping[str, Tensor],
        *,
        floor: int,
        void: Collection[int] = (),
    ) -> None:
        """Write what is kept after this question; forget what no resumed server can ask for."""
        storage.make_folder(self.folder)
        data = to_bytes({name: t.detach().contiguous() for name, t in kept.items()})
        storage.replace_file(self._file((round, call)), data)
        for v in self.versions():
            if v > (round, call):  # of an earlier attempt at this round or a later one
                self._file(v).unlink(missing_ok=True)
        old = [v for v in self.versions() if v[0] <= floor and v[0] not in void]
        for v in old[:-1]:
            self._file(v).unlink(missing_ok=True)

    def _file(self, version: Version) -> Path:
        return self.folder / f"{version[0]}.{version[1]}.safetensors"


def digest(name: str) -> str:
    """A folder's name for any text: nothing that came over a wire becomes part of a path."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def client_app(
    host_of: Callable[[Context], tuple[Host, Path]],
    turned_away: Callable[[str], None] = lambda why: None,
    tell: Listener = silence,
) -> ClientApp:
    """A Flower client that answers coterie's questions; `host_of` knows whose data, and where
    its memory is kept; `turned_away` hears why the server does not want this client, `tell` all
    that is asked and answered."""
    app = ClientApp()

    @app.query("away")
    def away(message: Message, context: Context) -> Message:
        why = str(message.content.config_records["away"]["why"])[:300]
        turned_away("".join(c if c.isprintable() else "?" for c in why))
        return Message(RecordDict(), reply_to=message)

    @app.query("hello")
    def hello(message: Message, context: Context) -> Message:
        tell({"event": "hello"})
        return Message(handle_hello(message.content, host_of(context)[0]), reply_to=message)

    @app.query("bye")
    def bye(message: Message, context: Context) -> Message:
        tell({"event": "bye"})
        return Message(RecordDict(), reply_to=message)

    def task(message: Message, context: Context) -> Message:
        return Message(handle_task(message.content, *host_of(context), tell), reply_to=message)

    app.train("task")(task)
    app.evaluate("task")(task)
    return app
