"""Clients that would change their cluster: whither training pulls them, and who their peers are.

A model can be better for a client because its data are that cluster's, or only because it is
further trained than the one it holds. Peers tell which: by the second they would gain as well.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from coterie.core.rng import stream
from coterie.core.types import Federation, Replies, State

PEERS = 4  # of a client that would move, who say what they would gain by it


class Wishes(NamedTuple):
    """Clients that would lose less with another cluster's model."""

    clients: Tensor  # (m,)
    target: Tensor  # (m,) the cluster
    saved: Tensor  # (m,) of the loss
    error: Tensor  # (m,) of that, over samples
    loss: Tensor  # (m,) with the model they hold

    @classmethod
    def nobody(cls) -> Wishes:
        """There are none."""
        nobody, nothing = torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.float64)
        return cls(nobody, nobody, nothing, nothing, nothing)

    def of(self, rows: Tensor) -> Wishes:
        """Some of them."""
        return Wishes(*(t[rows] for t in self))


def pulls(state: State, w: Replies) -> Tensor:
    """(m, k) whither training led: the cosine of each update with the way to each model.

    Where clients are as they were, their own model is between them and the others'.
    """
    held = state.assign[w.clients]
    pull = w.values.new_zeros(len(w), state.k)
    for c in held.unique():
        way = normalize(state.models - state.models[c], dim=1)
        pull[held == c] = normalize(w.values[held == c] - state.models[c], dim=1) @ way.T
    return pull


def peers(state: State, wishes: Wishes, w: Replies, c: int, fed: Federation) -> Tensor:
    """A few members of cluster c, at random, who were drawn and do not wish to leave it."""
    stay = (state.assign[w.clients] == c) & ~torch.isin(w.clients, wishes.clients)
    drawn = w.clients[stay]
    order = torch.randperm(len(drawn), generator=stream(fed.seed, "peers", fed.round, c))
    return drawn[order[:PEERS].sort().values]
