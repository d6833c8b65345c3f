"""Every method on every engine: what the serial one gives, to the bit or within rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from coterie.core.loop import evaluate, run
from coterie.core.types import State
from coterie.engines.front import Front
from coterie.methods import METHODS
from coterie.runs import checkpoint
from tests.test_contract import ALL, ROUNDS, last, measured, memory_equal, method, truth
from tests.tiny import clients, compiled, federation, pooled, same, stacked

ODD = ["one client", "identical clients", "one sample", "one class"]


def in_processes(kind: Callable[..., Front], *args: Any, **how: Any) -> Front:
    return pooled(kind(*args, **how), 2)


ENGINES: dict[str, Callable[..., Front]] = {
    "pool": partial(in_processes, Front),
    "stacked": stacked,
    "stacked in processes": partial(in_processes, partial(stacked, workers=2)),
    "compiled": compiled,
    "compiled in processes": partial(in_processes, compiled),
}
ELSEWHERE = {"pool", "stacked in processes", "compiled in processes"}
# A method of each kind, where all have passed on the engine inside; memories stay with the front.
SOME = {"fedavg", "scaffold", "ditto", "fedclust", "kin"}


@contextmanager
def world(engine: str, people: list[Any] | None = None) -> Iterator[Any]:
    """The tiny federation on an engine; worker processes end with it."""
    kind: Any = ENGINES[engine]
    fed: Any = federation(kind=kind) if people is None else federation(kind=kind, people=people)
    with fed:
        yield fed


def close(a: State, b: State) -> None:
    """Within rounding: a few steps in another order of sums."""
    assert torch.equal(a.assign, b.assign)
    torch.testing.assert_close(a.models, b.models, rtol=1e-4, atol=1e-5)


# Not "compiled in processes", which has the bits of "compiled": that is a test of its own.
@pytest.mark.parametrize("engine", list(ENGINES)[:-1])
@ALL
def test_an_engine_gives_what_serial_gives(name: str, engine: str) -> None:
    whole = truth(name)
    with world(engine) as fed:
        for a, b in zip(whole.states, run(method(name), fed, ROUNDS), strict=True):
            assert same(a, b) if engine == "pool" else close(a, b) is None
        kept = whole.memories[-1]
        assert fed.memory.keys() == kept.keys()
        assert engine != "pool" or memory_equal(fed.memory, kept)
        loss = evaluate(method(name), b, fed).loss
        torch.testing.assert_close(loss, whole.loss, rtol=1e-4, atol=1e-5)
        assert [sum(e.up.tolist()) for e in fed.ledger] == whole.up


def resumed() -> Iterator[Any]:
    """Every method on every engine; those of workers with some methods, unless all are wanted."""
    for name in METHODS:
        for engine in ENGINES:
            rare = engine in ELSEWHERE and name not in SOME
            yield pytest.param(name, engine, marks=[pytest.mark.thorough] if rare else [])


@pytest.mark.parametrize(("name", "engine"), list(resumed()))
def test_resume_on_an_engine_gives_the_same_bits(name: str, engine: str, tmp_path: Path) -> None:
    with world(engine) as fed, world(engine) as again:
        for state in run(method(name), fed, ROUNDS):
            evaluate(method(name), state, fed)
            checkpoint.save(tmp_path, state, fed.memories(), {}, keep=ROUNDS + 1)
        middle = checkpoint.load(checkpoint.rounds(tmp_path)[ROUNDS // 2])
        again.restore(middle.memories)
        assert same(last(run(method(name), again, ROUNDS, middle.state)), state)
        assert memory_equal(again.memory, fed.memory)


@ALL
def test_compiled_training_has_the_same_bits_in_any_number_of_processes(name: str) -> None:
    with world("compiled") as one, world("compiled in processes") as several:
        ends = [last(run(method(name), fed, ROUNDS)) for fed in (one, several)]
        assert same(*ends)
        assert memory_equal(one.memory, several.memory)


@pytest.mark.parametrize("engine", ["stacked", "compiled"])
@pytest.mark.parametrize("case", ODD)
@ALL
@pytest.mark.row(21, counts="pairs of a method and odd data")
def test_odd_clients_on_an_engine(name: str, case: str, engine: str) -> None:
    people = clients(8)
    match case:
        case "one client":
            people = people[:1]
        case "identical clients":
            people = [replace(people[3], name=str(i)) for i in range(5)]
        case "one sample":
            people[2] = replace(people[2], x=people[2].x[:1], y=people[2].y[:1])
        case "one class":
            people[2] = replace(people[2], y=torch.zeros_like(people[2].y))
    with world(engine, people) as fed:
        end = last(measured(method(name, fraction=1.0), fed, ROUNDS))
        assert torch.isfinite(end.models).all()
        assert end.placed.tolist() == fed.clients.tolist()
