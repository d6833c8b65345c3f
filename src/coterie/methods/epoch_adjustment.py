"""AutoCFL's phase A as words: FedAvg in which clients train as long as their losses ask for."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from coterie.core.types import Federation, Replies, State
from coterie.tasks import Solver, Train
from coterie.words.voting import adjust_epochs, cumulative, whole_epochs

Adjust = Literal["all", "smaller", "none"]


def unhurried(state: State, solver: Solver) -> State:
    """E^0 epochs for everybody, and no losses yet; newcomers included, whoever was here before."""
    n = len(state.assign)
    E = state.memory.get("epochs", torch.zeros(0))
    losses = state.memory.get("losses", torch.zeros(0, n))
    if len(E) == n:
        return state
    mean = losses.mean(1, keepdim=True).expand(-1, n - losses.shape[1])
    return state.hold(
        epochs=torch.cat([E, torch.full((n - len(E),), float(solver.epochs))]),
        losses=torch.cat([losses, mean], 1),
    )


def paced(state: State, fed: Federation, solver: Solver) -> tuple[Replies, Tensor]:
    """What everybody trained in its own number of epochs, and all losses so far, (t, n)."""
    E = whole_epochs(state.memory["epochs"])
    w = fed.ask(fed.clients, Train(solver, report=("loss",)), state, epochs=E)
    losses = state.memory["losses"]
    if not w:
        return w, losses
    return w, torch.cat([losses, filled(w, losses)[None]])


def next_epochs(
    state: State, losses: Tensor, sizes: Tensor, alpha: float, adjust: Adjust
) -> Tensor:
    """(n,) how long everybody trains in the next round (Eq. 8, 9)."""
    E = state.memory["epochs"]
    if adjust == "none":
        return E
    return adjust_epochs(E, cumulative(losses)[-1], losses[-1], sizes, alpha, adjust == "smaller")


def filled(w: Replies, losses: Tensor) -> Tensor:
    """(n,) this round's losses; who did not answer keeps its last one, or the mean at first."""
    n = losses.shape[1]
    last = losses[-1] if len(losses) else w.extra["loss"].mean().expand(n)
    return last.index_copy(0, w.clients, w.extra["loss"])
