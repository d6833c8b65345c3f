"""A grid in one process: every message is a real one and goes through a real ClientApp."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from flwr.app import Context, Error, Message, RecordDict

from coterie.core.client import Client
from coterie.core.layout import Layout
from coterie.core.rng import stream
from coterie.engines.flower.backend import Deadlines, federation
from coterie.engines.flower.client import client_app
from coterie.engines.flower.exchange import Clock, Exchange
from coterie.engines.flower.internals import identify
from coterie.engines.front import Front
from tests.tiny import CLASSES, FEATURES, clients, network


class Tiny:
    """The owner of one client of the tiny federation."""

    def __init__(self, client: Client) -> None:
        self.data, self.name = client, client.name

    def introduce(self, setup: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            "samples": len(self.data),
            "classes": [str(c) for c in range(CLASSES)],
            "shape": [FEATURES],
        }

    def layout(self, setup: Mapping[str, Any]) -> Layout:
        return Layout(network())

    def client(self, setup: Mapping[str, Any], round: int) -> Client:
        return self.data

    def keep_model(self, setup: Mapping[str, Any], row: Any, about: Mapping[str, Any]) -> None:
        return None


class FakeGrid:
    """Nodes 100, 101, ... hold clients 0, 1, ...; answers come back shuffled.

    `fault(name, message)` may say "lost" (never answered), "late" (answered when asked for again),
    "down" (an error, as of a node that died), "untaken" (not even sent), "twice", or give a change
    to make to the answer.
    """

    def __init__(self, owners: Sequence[Any], state: Path, clock: FakeClock) -> None:
        identify(1, 1, 1)  # as the runtime does
        self.owners, self.state, self.clock = dict(enumerate(owners, 100)), state, clock
        self.online = set(self.owners)
        self.came: dict[int, str] = {}
        self.fault: Callable[[str, Message], Any] = lambda name, message: None
        self.deaf: set[str] = set()  # who cannot be asked for its name
        self.replies: dict[str, list[Message]] = {}
        self.late: list[tuple[str, Message]] = []
        self.sent: list[tuple[str, str]] = []
        self.shuffle = random.Random(0)

    def get_nodes(self) -> Iterable[Any]:
        return [
            SimpleNamespace(node_id=n, last_activated_at=self.came.get(n, "")) for n in self.online
        ]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return [self.push(message) for message in messages]

    def push(self, message: Message) -> str:
        node = message.metadata.dst_node_id
        key = f"{len(self.sent)}"
        message.metadata.__dict__["_message_id"] = key
        owner = self.owners[node]
        self.sent.append((owner.name, message.metadata.message_type))
        act = self.fault(owner.name, message) if ".task" in message.metadata.message_type else None
        if act == "untaken":
            return ""
        if node not in self.online or act == "lost":
            return key
        if act == "down" or (
            ".task" not in message.metadata.message_type and owner.name in self.deaf
        ):
            self.replies[key] = [Message(Error(5, "node unavailable"), reply_to=message)]
            return key
        context = Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={})
        answer = client_app(lambda c: (owner, self.state / owner.name))(message, context)
        if callable(act):
            act(answer.content)
        if act == "late":
            self.late.append((key, answer))
        else:
            self.replies[key] = [answer] * (2 if act == "twice" else 1)
        return key

    def release(self) -> None:
        """Let late answers arrive."""
        for key, answer in self.late:
            self.replies[key] = [answer]
        self.late = []

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        found = [m for key in message_ids for m in self.replies.pop(key, [])]
        self.shuffle.shuffle(found)
        return found


class FakeClock:
    """Time that passes when somebody sleeps."""

    def __init__(self) -> None:
        self.time = 0.0
        self.wake: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.wake()

    def clock(self) -> Clock:
        return Clock(now=lambda: self.time, sleep=self.sleep, poll=1.0)


class Rig:
    """A tiny federation over the fake grid, and all that can go wrong with it."""

    def __init__(
        self, state: Path, n: int = 8, deadlines: Deadlines | None = None, *, seed: int = 7
    ) -> None:
        self.time = FakeClock()
        self.grid = FakeGrid([Tiny(c) for c in clients(n)], state, self.time)
        self.events: list[dict[str, Any]] = []
        self.deadlines = deadlines or Deadlines(deadline=20.0)
        self.names = [str(i) for i in range(n)]
        self.seed = seed
        self.fed = self.server()

    def server(self) -> Front:
        """A server that was just started: nothing of an earlier one is left but the clients."""
        exchange = Exchange(self.grid, tell=self.events.append, clock=self.time.clock())
        exchange.look()
        exchange.collect()
        self.fed = federation(
            exchange,
            Layout(network()),
            self.names,
            classes=CLASSES,
            experiment="e",
            setup={},
            deadlines=self.deadlines,
            seed=self.seed,
            public=torch.randn(12, FEATURES, generator=stream(0, "public")),
        )
        return self.fed

    def said(self, event: str) -> list[dict[str, Any]]:
        return [e for e in self.events if e["event"] == event]
