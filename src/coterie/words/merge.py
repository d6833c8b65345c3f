"""From replies to the next state: FedAvg's step in each cluster, and what servers do besides."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from coterie.core.layout import Layout
from coterie.core.types import Federation, Replies, State
from coterie.words.mixing import average, mix, move, within


def merge(state: State, w: Replies, columns: Tensor | slice | None = None) -> State:
    """Each model becomes the size-weighted average of what its own clients trained.

    A model nobody answered for stays as it was. With `columns`, only these were sent and change.
    """
    if not w:
        return state
    W = within(state.assign[w.clients], w.sizes, state.k)  # (k, m)
    return state.hold(mix(W, w.values, keep=state.models, columns=columns))


def advance(
    state: State, w: Replies, W: Tensor, layout: Layout, *, mean: Tensor, rate: float = 1.0
) -> State:
    """The one model after a server step, x + rate W @ (w_i - x), of what learns.

    Running statistics are no directions to follow (a long step would make a variance negative):
    they are averaged by `mean` (1, m).
    """
    x = mix(mean, w.values)  # (1, P)
    x[0, : layout.trainable] = move(
        W, w.values[:, : layout.trainable], state.models[0, : layout.trainable], rate
    )
    return state.hold(x)


def provisional(state: State, fed: Federation) -> State:
    """The state in which a client that was never assigned holds the mean of the centres."""
    if not len(state.unplaced):
        return state
    members = torch.zeros(state.k, dtype=torch.float64)
    members.index_add_(0, state.assign[state.placed], fed.sizes[state.placed])
    W = average(members) if members.sum() else average(torch.ones(state.k))
    mean = mix(W, state.models)
    lodged = replace(state, models=torch.cat([state.models, mean]))
    return lodged.give_unplaced(state.k)
