"""The step that every clustered method shares with FedAvg."""

from __future__ import annotations

from torch import Tensor

from coterie.core.layout import Layout
from coterie.core.types import Replies, State
from coterie.words.mixing import mix, move, within


def merge(state: State, w: Replies, columns: Tensor | slice | None = None) -> State:
    """Each model becomes the size-weighted average of what its own clients trained.

    A model nobody answered for stays as it was. With `columns`, only these were sent and change.
    """
    if not len(w.clients):
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
