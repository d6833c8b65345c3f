"""The loop: a generator of states. Whoever drives it owns what happens between rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from coterie.core import checks
from coterie.core.types import Engine, Evaluation, Method, State


def run(method: Method, fed: Engine, rounds: int, state: State | None = None) -> Iterator[State]:
    """Yield the state after init and after every round, starting from `state` if one is given."""
    state = state or method.init(fed.at(-1))
    yield state
    while state.round < rounds:
        state = replace(method.round(state, fed.at(state.round)), round=state.round + 1)
        checks.finite(state.models, f"round {state.round}: a model")
        yield state


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


def evaluate(method: Method, state: State, fed: Engine, task: Evaluation | None = None) -> Scores:
    """Test every client that holds a model, on streams of their own: nothing learns from it.

    It is the method's own test, or `task`, which has the same stages.
    """
    task = task or method.score
    replies = fed.at(state.round, "evaluate").ask(state.placed, task, state)
    values = replies.values if replies else torch.empty(0, len(task.stages), 2)
    tested = ~values[:, 0, 0].isnan()  # a client without test data has no accuracy, not accuracy 0
    accuracy, loss = values[tested].double().permute(2, 1, 0)
    who, absent = replies.clients, len(fed.clients) - len(replies.clients)
    nothing = tuple(who[~tested].tolist())
    extra = {name: t[tested] for name, t in replies.extra.items()}
    return Scores(who[tested], task.stages, accuracy, loss, absent, nothing, extra)
