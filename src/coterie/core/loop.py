"""The loop: a generator of states. Whoever drives it owns what happens between rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor

from coterie.core import checks, points
from coterie.core.types import VALIDATION, Engine, Evaluation, Method, Replies, State


def run(method: Method, fed: Engine, rounds: int, state: State | None = None) -> Iterator[State]:
    """Yield the state after init and after every round, starting from `state` if one is given."""
    state = state or method.init(fed.at(-1))
    yield state
    while state.round < rounds:
        points.reach("round", state.round + 1)
        now = in_round(method, state.round, rounds)
        here = fed.at(state.round, spare=spare(state))
        state = replace(expect_state(method, now.round(state, here), state), round=state.round + 1)
        checks.finite(state.models, f"round {state.round}: a model")
        yield state


def expect_state(method: Method, found: object, before: State) -> State:
    """What a round returned, if it is a state of models like those before."""
    name = f"{type(method).__name__}.round"
    if not isinstance(found, State):
        raise TypeError(f"{name} returned {type(found).__name__}, not the State after the round")
    if found.models.shape[1] != before.models.shape[1]:
        columns = f"{found.models.shape[1]:,} numbers, where models have {before.models.shape[1]:,}"
        raise ValueError(f"{name} returned models of {columns}")
    return found


def spare(state: State) -> Tensor:
    """The clients without whom a round goes on: those that hold no model while others do.

    Else whoever never sends anything that can be used would end a run at every try to place it.
    """
    return state.unplaced if len(state.placed) else state.unplaced[:0]


def in_round(method: Method, round: int, rounds: int) -> Method:
    """The method as it trains in one of so many rounds: with the rate that its schedule has then.

    What is no part of a round, as tuning before a test, has the learning rate itself.
    """
    changed: dict[str, Any] = {}
    inner, solver = (getattr(method, name, None) for name in ("method", "solver"))
    if inner is not None:  # one that is wrapped by another
        changed["method"] = in_round(inner, round, rounds)
    elif solver is not None and hasattr(solver, "at"):
        changed["solver"] = solver.at(round, rounds)
    if all(getattr(method, name) is value for name, value in changed.items()):
        return method
    made: Any = replace(cast(Any, method), **changed)
    return cast(Method, made)


def scheduled_rate(method: Method, round: int, rounds: int) -> float | None:
    """The learning rate of one of so many rounds; None where it is the same in all of them."""
    now: Any = in_round(method, round, rounds)
    return None if now is method else float(getattr(now, "method", now).solver.lr)


@dataclass(frozen=True)
class Scores:
    """How each client does: row s of `accuracy` and `loss` is stage `stages[s]`."""

    clients: Tensor  # (m,) those that hold a model and have test data
    stages: tuple[str, ...]
    accuracy: Tensor  # (stages, m) float64
    loss: Tensor  # (stages, m) float64
    absent: int = 0  # clients of whom nothing is known now: no answer, or no model yet
    untested: tuple[int, ...] = ()  # clients that answered that they have nothing to test
    extra: Mapping[str, Tensor] = field(default_factory=dict)  # (m, stages, ...) what else was sent
    validation: Scores | None = None  # the last stage on samples held back, if that was asked


def evaluate(method: Method, state: State, fed: Engine, task: Evaluation | None = None) -> Scores:
    """Test every client that holds a model, on streams of their own: nothing learns from it.

    It is the method's own test, or `task`, which has the same stages and may have "validation".
    """
    task = task or method.score
    now = fed.at(state.round, "evaluate")
    replies = now.ask(state.placed, task, state)
    values = replies.values if replies else torch.empty(0, len(task.stages), 2)
    absent = len(now.present(fed.clients)) - len(replies.clients)
    tests = [s for s, stage in enumerate(task.stages) if stage != VALIDATION]
    scores = scores_of(task, tests, values, replies, absent)
    if len(tests) == len(task.stages):
        return scores
    held = [s for s, stage in enumerate(task.stages) if stage == VALIDATION]
    return replace(scores, validation=scores_of(task, held, values, replies, absent))


def scores_of(
    task: Evaluation, stages: list[int], values: Tensor, replies: Replies, absent: int
) -> Scores:
    """Some stages of all answers (m, stages, 2); who had nothing to test has no accuracy, which is
    not accuracy 0."""
    tested = ~values[:, stages, 0].isnan().any(1)
    accuracy, loss = values[tested][:, stages].double().permute(2, 1, 0)
    who, names = replies.clients, tuple(task.stages[s] for s in stages)
    nothing = tuple(who[~tested].tolist())
    extra = {name: t[tested][:, stages] for name, t in replies.extra.items()}
    return Scores(who[tested], names, accuracy, loss, absent, nothing, extra)
