"""What every method promises, one row per method: a new method is a new row."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from coterie import checkpoint
from coterie.loop import evaluate, run
from coterie.methods import METHODS, find
from coterie.solver import Solver
from coterie.types import State
from tests.tiny import Flaky, Wire, clients, federation, same

SOLVER = Solver(lr=0.1, batch=8)
# Settings that make a method quick and lively on the tiny federation; `fraction` leaves some out.
SETTINGS: dict[str, dict[str, Any]] = {}
ROUNDS = 4
ALL = pytest.mark.parametrize("name", list(METHODS))


def method(name: str, **changes: Any) -> Any:
    cls: Any = find(name)
    settings = {"solver": SOLVER, "fraction": 0.6} | SETTINGS.get(name, {}) | changes
    known = {f.name for f in fields(cls)}
    return cls(**{key: value for key, value in settings.items() if key in known})


def last(states: Iterator[State]) -> State:
    return list(states)[-1]


@ALL
def test_resume_from_every_round_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    fed = federation()
    for state in run(method(name), fed, ROUNDS):
        checkpoint.save(tmp_path, state, fed.memories(), {}, keep=ROUNDS + 1)
    for saved in checkpoint.rounds(tmp_path):
        again = federation()
        loaded = checkpoint.load(saved)
        again.restore(loaded.memories)
        assert same(last(run(method(name), again, ROUNDS, loaded.state)), state), saved.name
        assert memory_equal(again, fed), saved.name


def memory_equal(a: Any, b: Any) -> bool:
    return a.memory.keys() == b.memory.keys() and all(
        torch.equal(a.memory[i][k], b.memory[i][k]) for i in a.memory for k in a.memory[i]
    )


@ALL
def test_a_wire_gives_the_same_bits(name: str) -> None:
    assert same(
        last(run(method(name), federation(kind=Wire), ROUNDS)),
        last(run(method(name), federation(), ROUNDS)),
    )


@ALL
def test_renumbering_clients_renumbers_the_result(name: str) -> None:
    everybody = method(name, fraction=1.0)
    order = torch.tensor([5, 2, 7, 0, 3, 6, 1, 4])
    fed, turned = federation(), federation()
    turned.population = [fed.population[i] for i in order]
    turned.names = [fed.names[i] for i in order]
    turned.sizes = fed.sizes[order]
    a, b = last(run(everybody, fed, ROUNDS)), last(run(everybody, turned, ROUNDS))
    torch.testing.assert_close(a.of(order), b.of(torch.arange(8)), rtol=1e-3, atol=1e-4)


@ALL
def test_a_third_of_the_answers_lost_still_finishes(name: str) -> None:
    fed = federation(kind=Flaky)
    end = last(run(method(name, fraction=1.0), fed, 3 * ROUNDS))
    assert torch.isfinite(end.models).all()
    assert end.placed.tolist() == fed.clients.tolist()


@ALL
def test_evaluation_changes_nothing(name: str) -> None:
    quiet, watched = federation(), federation()
    watching = run(method(name), watched, ROUNDS)
    for undisturbed, state in zip(run(method(name), quiet, ROUNDS), watching, strict=True):
        evaluate(method(name), state, watched)
        assert same(undisturbed, state)
    assert memory_equal(quiet, watched)


@ALL
def test_every_hyper_parameter_changes_the_result(name: str) -> None:
    def outcome(m: Any) -> tuple[State, torch.Tensor]:
        fed = federation()
        end = last(run(m, fed, ROUNDS))
        return end, evaluate(m, end, fed).loss

    base = method(name)
    reference = outcome(base)
    for field in fields(base):
        other = outcome(replace(base, **{field.name: changed(base, field)}))
        differs = not same(reference[0], other[0]) or not torch.equal(reference[1], other[1])
        assert differs, f"{name}: {field.name} makes no difference"


def changed(base: Any, field: dataclasses.Field[Any]) -> Any:
    """Another legal value for a field."""
    value = getattr(base, field.name)
    annotation = typing.get_type_hints(type(base))[field.name]
    if typing.get_origin(annotation) is typing.Literal:
        return next(v for v in typing.get_args(annotation) if v != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, Solver):
        return replace(value, lr=value.lr / 2)
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value / 2 if value else 0.5
    if isinstance(value, str):
        return {"head": "all", "all": "head"}[value]
    raise TypeError(f"no other value known for {field.name} = {value!r}")


@ALL
def test_a_newcomer_is_placed_and_nobody_else_moves(name: str) -> None:
    m = method(name)
    fed = federation(7)
    end = last(run(m, fed, ROUNDS))
    bigger = federation(8)
    bigger.population = [*fed.population, clients(8)[7]]
    bigger.restore(fed.memories())
    joined = replace(end, assign=torch.cat([end.assign, torch.tensor([-1])]))
    joined = m.place(joined, bigger.at(ROUNDS))
    assert len(joined.unplaced) == 0
    assert torch.equal(joined.assign[:7], end.assign)
