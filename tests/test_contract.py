"""What every method promises, one row per method: a new method is a new row."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
import torch

from coterie.core.errors import FieldError
from coterie.core.loop import evaluate, run
from coterie.core.metric_names import METRICS as MEASURES
from coterie.core.model_kind import declared
from coterie.core.types import Evaluation, State
from coterie.engines.front import Front
from coterie.engines.question import Question
from coterie.methods import METHODS, find
from coterie.runs import checkpoint
from coterie.runs.measure import grouped
from coterie.tasks.measured import measured as with_metrics
from coterie.tasks.solver import Solver
from coterie.words.server import ServerOptimiser
from tests.tiny import Flaky, Wire, clients, federation, same

SOLVER = Solver(lr=0.1, batch=8)
# Settings that make a method quick and lively on the tiny federation; `fraction` leaves some out.
SETTINGS: dict[str, dict[str, Any]] = {
    "cflgt": {"pretrain": 1, "hopkins": 0.0, "silhouette": 0.0},
    "autocfl": {"latest": 2},
    "fedclust": {"warmup_epochs": 2},
    "kin": {"warmup_steps": 0},
    "feddsmic": {"clusters": 2},
    "fedds": {"clusters": 2},
    "ifca": {"clusters": 2},
    "cfl": {"eps1": 10.0, "eps2": 0.1, "min_round": 1, "min_size": 2},
    "flhc": {"rounds_before": 1, "clusters": 2},
    "fedsem": {"clusters": 2},
    "pacfl": {"clusters": 2},
    "fedsoft": {"clusters": 2},
    "fedem": {"clusters": 2},
    "metadata": {"column": "group"},
    "feddrift": {"every": 2, "delta": 0.05, "merge": 1.0, "start": "own"},
    "fedrc": {"clusters": 2},
    "fedpfa": {"pretrain": 1, "clusters": 2},
    "fedrep": {"head_epochs": 2},
    "fedbn": {"private": "0"},  # the tiny network has no normalisation
    "creff": {"features": 5, "match_steps": 4, "retrain_steps": 8},
}
ROUNDS = 4
ALL = pytest.mark.parametrize("name", list(METHODS))


def method(name: str, **changes: Any) -> Any:
    cls: Any = find(name)
    settings = {"solver": SOLVER, "fraction": 0.6} | SETTINGS.get(name, {}) | changes
    known = {f.name for f in fields(cls)}
    return cls(**{key: value for key, value in settings.items() if key in known})


def measured(m: Any, fed: Any, rounds: int) -> Iterator[State]:
    """The states of a run, each of which can be measured, whoever is missing in it."""
    before = None
    for state in run(m, fed, rounds):
        rows = grouped(state, before, torch.zeros(len(fed.clients), dtype=torch.long))
        assert all(isfinite(row.value) for row in rows)
        before = state.assign
        yield state


def last(states: Iterator[State]) -> State:
    return list(states)[-1]


Memories = Mapping[int, Mapping[str, torch.Tensor]]


@dataclass(frozen=True)
class Truth:
    """A method's run on the serial engine, from round 0 on: what many tests compare with."""

    states: list[State]
    memories: list[Memories]  # of the clients, after each
    loss: torch.Tensor  # of each client in the end
    up: list[int]  # bytes that each question brought, those of the test at the end included


@cache
def truth(name: str, fraction: float = 0.6) -> Truth:
    """Trained once in a process, however many tests look at it."""
    m, fed, states, memories = method(name, fraction=fraction), federation(), [], []
    for state in run(m, fed, ROUNDS):
        states.append(state)
        memories.append({i: dict(kept) for i, kept in fed.memories().items()})
    loss = evaluate(m, state, fed).loss
    return Truth(states, memories, loss, [sum(asked.up.tolist()) for asked in fed.ledger])


@ALL
def test_resume_from_every_round_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    whole = truth(name)
    for state, memories in zip(whole.states, whole.memories, strict=True):
        checkpoint.save(tmp_path, state, memories, {}, keep=ROUNDS + 1)
    for saved in checkpoint.rounds(tmp_path):
        again = federation()
        loaded = checkpoint.load(saved)
        again.restore(loaded.memories)
        assert same(last(run(method(name), again, ROUNDS, loaded.state)), state), saved.name
        assert memory_equal(again.memory, memories), saved.name


def memory_equal(a: Memories, b: Memories) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[i][k], b[i][k]) for i in a for k in a[i])


@ALL
def test_a_wire_gives_the_same_bits(name: str) -> None:
    assert same(last(run(method(name), federation(kind=Wire), ROUNDS)), truth(name).states[-1])


class Declared(Front):
    """A federation whose every task must declare what its answer may be."""

    def question(self, *what: Any) -> Question:
        question = super().question(*what)
        assert not len(question.cohort) or question.form(0) is not None, question.task
        return question


@ALL
def test_an_answer_has_the_form_that_its_task_declares(name: str) -> None:
    fed = federation(kind=Declared)
    for state in run(method(name), fed, ROUNDS):
        evaluate(method(name), state, fed)
        fed.at(state.round, "evaluate").ask(state.placed, method(name).score.held, state)
    plain, more = (evaluate(method(name), state, fed, task) for task in (None, everything(name)))
    assert torch.equal(plain.accuracy, more.accuracy)
    assert more.extra.keys() == {"numbers", "classes"}
    assert not any(asked.rejected for asked in fed.ledger)


def everything(name: str) -> Evaluation:
    """The test of a method with every metric there is."""
    return with_metrics(method(name).score, list(MEASURES))


@ALL
def test_the_models_are_whose_the_method_says(name: str) -> None:
    m, fed, whole = method(name, fraction=1.0), federation(), truth(name, 1.0)
    fed.restore(whole.memories[-1])
    state = whole.states[-1]
    used = fed.at(state.round, "evaluate").ask(state.placed, m.score.held, state).values
    several, groups = len(used.unique(dim=0)), len(state.assign.unique())
    match declared(m):
        case "shared":
            assert (several, state.k) == (1, 1)
        case "personal":  # nobody uses another's model, and nobody is grouped by the state
            assert several == len(fed.clients)
            assert groups in (1, len(fed.clients))
        case "clustered":
            assert state.k > 1  # there is a choice, and some share what they chose
            assert groups < len(fed.clients)
            if m.score.private == "none" and m.score.trains is None:
                assert several <= groups  # fewer where a cluster was split just now
        case None:
            pytest.fail(f"{name} does not say whose its models are")


@ALL
def test_renumbering_clients_renumbers_the_result(name: str) -> None:
    everybody = method(name, fraction=1.0)
    order = torch.tensor([5, 2, 7, 0, 3, 6, 1, 4])
    fed, turned = federation(), federation()
    turned.population = [fed.population[i] for i in order]
    turned.names = [fed.names[i] for i in order]
    turned.sizes, turned.groups = fed.sizes[order], fed.groups[order]
    a, b = truth(name, 1.0).states[-1], last(run(everybody, turned, ROUNDS))
    torch.testing.assert_close(a.of(order), b.of(torch.arange(8)), rtol=1e-3, atol=1e-4)


@ALL
@pytest.mark.row(6)
def test_a_third_of_the_answers_lost_still_finishes(name: str) -> None:
    fed = federation(kind=Flaky)
    end = last(measured(method(name, fraction=1.0), fed, 3 * ROUNDS))
    assert torch.isfinite(end.models).all()
    assert end.placed.tolist() == fed.clients.tolist()


@ALL
def test_a_misspelt_option_is_refused(name: str) -> None:
    with pytest.raises(FieldError, match=r"fractoin = 0\.5: no such field"):
        find(name)(fractoin=0.5)


@ALL
def test_evaluation_changes_nothing(name: str) -> None:
    quiet, watched = truth(name), federation()
    watching = run(method(name), watched, ROUNDS)
    for undisturbed, state in zip(quiet.states, watching, strict=True):
        evaluate(method(name), state, watched)
        assert same(undisturbed, state)
    assert memory_equal(quiet.memories[-1], watched.memory)


# Clusters that mean little, and clients that move for the slightest gain.
WANDERING = dict.fromkeys(("gain", "sure", "rise", "better", "firm"), 0.0) | {"look": 1}
# A field that matters only in company, or on clients of another kind: (settings, federation).
COMPANY: dict[tuple[str, str], tuple[dict[str, Any], dict[str, Any]]] = {
    ("kin", "rise"): (WANDERING | {"fraction": 1.0}, {"n": 12, "groups": 1, "seed": 1}),
    ("kin", "better"): (WANDERING, {"n": 12, "groups": 1}),
    ("kin", "firm"): (WANDERING, {"n": 12, "groups": 1}),
    ("autocfl", "weighted"): ({"guard": "none"}, {"n": 12, "groups": 1}),
    ("autocfl", "chain"): ({"guard": "none"}, {"n": 12, "groups": 1, "seed": 1}),
    ("autocfl", "literal"): ({"guard": "none"}, {"seed": 1}),
    ("autocfl", "earliest"): ({"latest": 1}, {}),
    ("autocfl", "guard"): ({"guard": "none", "literal": True}, {"n": 12, "groups": 1}),
    ("autocfl", "told"): ({"clustering": "hac"}, {}),
    ("autocfl", "clustering"): ({}, {"n": 12, "groups": 1, "seed": 1}),
    ("cflgt", "damping"): ({"damping": 0.95}, {"groups": 1}),
    ("cflgt", "hopkins"): ({"hopkins": 0.75}, {}),
    ("cflgt", "silhouette"): ({"silhouette": 0.5}, {"groups": 1}),
    ("feddsmic", "seeding"): ({"clusters": 3}, {}),
    ("fedds", "seeding"): ({"clusters": 3}, {}),
    ("fedclust", "distance"): ({"clusters": 3}, {}),
    ("fedclust", "linkage"): ({"clusters": 3}, {"groups": 1}),
    ("fedclust", "attach"): ({}, {"n": 16, "groups": 3}),
    ("ifca", "starts"): ({}, {"seed": 1}),
    ("feddrift", "delta"): ({"delta": 1.0, "merge": None}, {}),
    ("feddrift", "most"): ({"most": 2}, {}),
    ("cfl", "eps1"): ({"eps1": 0.2}, {}),
    ("cfl", "eps2"): ({"eps2": 0.5}, {}),
    ("cfl", "min_size"): ({"min_size": 3}, {}),
    ("flhc", "threshold"): ({"clusters": 0}, {}),
    ("flhc", "linkage"): ({"clusters": 3}, {"n": 16, "groups": 1}),
    ("flhc", "alpha"): ({"adjust": "all", "rounds_before": 2}, {}),
    ("pacfl", "threshold"): ({"clusters": 0}, {}),
    ("fedpfa", "threshold"): ({"clusters": 0, "threshold": 0.3}, {}),
    ("fedpfa", "linkage"): ({}, {"groups": 1}),
    ("perfedavg", "delta"): ({"order": "hessian-free"}, {}),
}
# Where halving or adding one is not the change to try.
INSTEAD: dict[tuple[str, str], Any] = {
    ("autocfl", "clustering"): "auto_cosine",
    ("cflgt", "damping"): 0.7,
    ("fedpfa", "layer"): "2",
    ("lg-fedavg", "private"): "none",
    ("fedbn", "private"): "none",
    ("metadata", "column"): "parity",
    ("kin", "warmup_steps"): 150,
    ("kin", "gain"): 1.0,
    ("kin", "sure"): 1000.0,
    ("kin", "rise"): 1000.0,
    ("kin", "better"): 1.0,
    ("kin", "firm"): 1000.0,
    # among eight clients, a limit that is felt
    **{(name, "landmarks"): 4 for name in METHODS},
}


def cases() -> Iterator[tuple[str, str]]:
    for name in METHODS:
        for field in fields(find(name)):
            if field.name not in getattr(find(name), "refuses", {}):
                yield name, field.name


@pytest.mark.parametrize(("name", "field"), list(cases()))
def test_every_hyper_parameter_changes_the_result(name: str, field: str) -> None:
    settings, world = COMPANY.get((name, field), ({}, {}))
    base = method(name, **settings)
    other = INSTEAD[name, field] if (name, field) in INSTEAD else changed(base, field)
    (a, scores_a), (b, scores_b) = (
        outcome(m, world) for m in (base, replace(base, **{field: other}))
    )
    assert not same(a, b) or not torch.equal(scores_a, scores_b)


OUTCOMES: dict[str, tuple[State, torch.Tensor]] = {}  # most fields of a method share their base


def outcome(m: Any, world: dict[str, Any]) -> tuple[State, torch.Tensor]:
    key = repr((m, world))
    if key not in OUTCOMES:
        fed = federation(**world)
        end = last(run(m, fed, ROUNDS))
        OUTCOMES[key] = end, evaluate(m, end, fed).loss
    return OUTCOMES[key]


def changed(base: Any, field: str) -> Any:
    """Another legal value for a field."""
    value = getattr(base, field)
    annotation = typing.get_type_hints(type(base))[field]
    choices = [v for t in (annotation, *typing.get_args(annotation)) for v in typing.get_args(t)]
    if typing.get_origin(annotation) is typing.Literal:
        return next(v for v in reversed(choices) if v != value)
    match value:
        case bool():
            return not value
        case Solver():
            return replace(value, lr=value.lr / 2)
        case ServerOptimiser():
            return ServerOptimiser("momentum")
        case int():
            return value + 1
        case float():
            return value / 2 if value else 0.5
        case None | "median":  # a number may stand here, too
            return 0.9
        case "head" | "all":
            return {"head": "all", "all": "head"}[value]
    raise TypeError(f"no other value known for {field} = {value!r}")


@ALL
@pytest.mark.row(7)
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
    assert torch.equal(joined.assign[end.placed], end.assign[end.placed])


def odd(case: str) -> Any:
    """A federation that a method was not thought of for."""
    people = clients(8)
    match case:
        case "one client":
            people = people[:1]
        case "two clients":
            people = people[:2]
        case "identical clients":
            people = [replace(people[3], name=str(i)) for i in range(5)]
        case "one sample":
            people[2] = replace(people[2], x=people[2].x[:1], y=people[2].y[:1])
        case "one class":
            people[2] = replace(people[2], y=torch.zeros_like(people[2].y))
    fed = federation(len(people))
    fed.population = people
    fed.sizes = torch.tensor([float(len(p)) for p in people], dtype=torch.float64)
    return fed


@ALL
@pytest.mark.parametrize(
    "case", ["one client", "two clients", "identical clients", "one sample", "one class"]
)
@pytest.mark.row(21, counts="pairs of a method and odd data")
def test_odd_clients_are_trained_and_placed(name: str, case: str) -> None:
    fed = odd(case)
    end = last(measured(method(name, fraction=1.0), fed, ROUNDS))
    assert torch.isfinite(end.models).all()
    assert end.placed.tolist() == fed.clients.tolist()
