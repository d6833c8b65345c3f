"""Everybody's model after some epochs on its own data: the baseline behind every method."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from coterie.core.model_kind import kind_of
from coterie.core.types import State
from coterie.runs import measure, metrics
from coterie.runs.history import Row
from coterie.tasks.score import Score
from coterie.tasks.solver import Solver

if TYPE_CHECKING:
    from coterie.studies.run.train_loop import Gathered

STAGE = "tuned"  # in the history and the summary


def tuned(them: Gathered, state: State, epochs: int) -> list[Row]:
    """The rows of a test after so many local epochs from the model each holds; nothing is kept.

    The recipe is the method's own, without its proximal or meta term: it is plain fine-tuning.
    """
    fed, solver = them.fed, getattr(them.method, "solver", Solver())
    plain = replace(solver, epochs=epochs, steps=0, prox=0.0, meta=0.0)
    task = Score(plain, them.method.score.private)
    replies = fed.at(state.round, "evaluate").ask(state.placed, task, state)
    fed.ledger.clear()  # a test is not traffic
    if not replies:
        return []
    there = ~replies.values[:, -1, 0].isnan()
    who, (accuracy, loss) = replies.clients[there], replies.values[there, -1].double().T
    both = {"accuracy": accuracy, "loss": loss}
    whole = metrics.summarise(accuracy, fed.sizes[who]) | {"loss": float(loss.mean())}
    rows = measure.of_clients(state, who, fed.names, STAGE, both, kind_of(them.method))
    return rows + measure.of_all(state, STAGE, whole)
