"""A federation small enough to train in milliseconds, and engines that misbehave on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from coterie.core.client import Client
from coterie.core.layout import Layout
from coterie.core.rng import stream
from coterie.core.types import Replies, Reply, State, Task
from coterie.engines.front import Front
from coterie.engines.question import Question
from coterie.engines.serial import Serial
from coterie.engines.stacked.backend import Stacked
from coterie.engines.workers.backend import Workers
from coterie.engines.workers.processes import Processes
from coterie.tasks.wire import decode, encode

CLASSES, FEATURES = 4, 6


def client(i: int, n: int, groups: int = 2, samples: int | None = None) -> Client:
    """Client i of n: Gaussian classes, whose labels are turned by the client's group."""
    rng = stream(0, "tiny", i)
    m = 16 + 5 * i if samples is None else samples
    centres = 3 * torch.randn(CLASSES, FEATURES, generator=stream(0, "centres"))
    y = torch.randint(0, CLASSES, (m + 24,), generator=rng)
    x = centres[y] + torch.randn(m + 24, FEATURES, generator=rng)
    y = (y + i * groups // n) % CLASSES
    return Client(x[:m], y[:m], x[m:], y[m:], name=str(i))


def network(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, CLASSES))


def clients(n: int = 8, groups: int = 2) -> list[Client]:
    return [client(i, n, groups) for i in range(n)]


def federation(
    n: int = 8,
    groups: int = 2,
    kind: Callable[..., Front] = Front,
    seed: int = 7,
    people: Sequence[Client] | None = None,
) -> Front:
    people = clients(n, groups) if people is None else people
    return kind(
        people,
        Layout(network()),
        classes=CLASSES,
        seed=seed,
        public=torch.randn(12, FEATURES, generator=stream(0, "public")),
        groups=torch.arange(len(people)) * groups // n,
        columns={"parity": [str(i % 2) for i in range(len(people))]},
    )


def stacked(people: Sequence[Client], layout: Layout, workers: int = 1, **how: Any) -> Front:
    """A federation whose clients train side by side."""
    backend = Stacked(layout, people[0].x[:4], workers=workers)
    return Front(people, layout, backend=backend, **how)


def compiled(people: Sequence[Client], layout: Layout, **how: Any) -> Front:
    """A federation whose clients train by compiled code."""
    pytest.importorskip("llvmlite")
    from coterie.engines.compiled.backend import Compiled

    return Front(people, layout, backend=Compiled(layout, people[0].x[:4]), **how)


def pooled(fed: Front, workers: int = 2) -> Front:
    """The same federation, answered by worker processes."""
    fed.backend = Workers(fed.backend, Processes(workers))
    return fed


def same(a: State, b: State) -> bool:
    """Equal to the bit, memory included."""
    return (
        torch.equal(a.models, b.models)
        and torch.equal(a.assign, b.assign)
        and a.round == b.round
        and a.memory.keys() == b.memory.keys()
        and all(torch.equal(a.memory[k], b.memory[k]) for k in a.memory)
    )


class Copying(Serial):
    """Everything crosses as bytes: tasks as text, tensors as copies."""

    def answer(self, question: Question, places: Sequence[int]) -> list[Reply]:
        crossed = replace(
            question,
            task=decode(encode(question.task)),
            state=replace(question.state, models=copied(question.state.models)),
            send={k: copied(v) for k, v in question.send.items()},
        )
        return [
            Reply(
                copied(reply.value),
                {k: copied(v) for k, v in reply.extra.items()},
                {k: copied(v) for k, v in reply.keep.items()},
            )
            for reply in super().answer(crossed, places)
        ]


def copied(t: Tensor) -> Tensor:
    return torch.from_numpy(t.detach().numpy().copy())


Wire = partial(Front, backend=Copying())


class Flaky(Front):
    """A third of the answers never arrive, other ones every time; who gave them remembers it."""

    def ask(self, cohort: Tensor, task: Task, state: State, **send: Tensor) -> Replies:
        r = super().ask(cohort, task, state, **send)
        if self.purpose != "train":
            return r
        rng = stream(self.seed, "lost", self.round, self.calls)
        kept = torch.rand(len(r.clients), generator=rng) > 1 / 3
        extra: dict[str, Any] = {k: v[kept] for k, v in r.extra.items()}
        return replace(
            r, clients=r.clients[kept], values=r.values[kept], sizes=r.sizes[kept], extra=extra
        )
