"""The step that every clustered method shares with FedAvg."""

from __future__ import annotations

from torch import Tensor

from coterie.mixing import mix, within
from coterie.types import Replies, State


def merge(state: State, w: Replies, columns: Tensor | slice | None = None) -> State:
    """Each model becomes the size-weighted average of what its own clients trained.

    A model nobody answered for stays as it was. With `columns`, only these were sent and change.
    """
    W = within(state.assign[w.clients], w.sizes, state.k)  # (k, m)
    return state.hold(mix(W, w.values, keep=state.models, columns=columns))
