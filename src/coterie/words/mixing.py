"""Mixing: whose weights go into whose model. W is (k, m), the next models are W @ rows.

Weights first, then the products, then what a server makes of replies with them.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from coterie.core import checks
from coterie.core.types import Federation, Layout, Replies, State


def average(sizes: Tensor) -> Tensor:
    """One model from everybody who came, weighted by size: (m,) -> (1, m), summing to 1.

    A row of zeros when nobody came or nobody holds a sample.

    >>> average(torch.tensor([1, 3])).tolist()
    [[0.25, 0.75]]
    """
    return within(torch.zeros(len(sizes), dtype=torch.long), sizes, 1)


def uniform(m: int) -> Tensor:
    """One model from everybody who came, each counted alike: m -> (1, m).

    >>> uniform(4).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    return average(torch.ones(m))


def within(labels: Tensor, sizes: Tensor, k: int) -> Tensor:
    """One model per group from its own members, weighted by size: (m,), (m,), k -> (k, m).

    Rows sum to 1, or to 0 for a group nobody came for.

    >>> within(torch.tensor([0, 2, 0]), torch.tensor([1.0, 5.0, 3.0]), 3).tolist()
    [[0.25, 0.0, 0.75], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    checks.count(k)
    checks.weights(sizes, "sizes", len(labels))
    checks.indices(labels, "labels", len(labels), k)
    W = torch.zeros(k, len(labels), dtype=torch.float64)
    W[labels, torch.arange(len(labels))] = sizes.double()
    total = W.sum(1, keepdim=True)
    return W / torch.where(total > 0, total, 1)


def mix(
    W: Tensor, rows: Tensor, keep: Tensor | None = None, columns: Tensor | slice | None = None
) -> Tensor:
    """The next models, each the sum over j of W[i, j] rows[j]: (k, m), (m, P) -> (k, P).

    Where a row of W is all zero the model stays as in `keep` (k, P). With `columns`, the rows hold
    only these columns, (m, len(columns)), and all others stay as in `keep`. A model taken from one
    client with weight 1 is that client's, bit for bit.

    >>> W = torch.tensor([[0.5, 0.5], [0.0, 0.0]])
    >>> mix(W, torch.tensor([[1.0], [3.0]]), keep=torch.tensor([[8.0], [9.0]])).tolist()
    [[2.0], [9.0]]
    """
    checks.shaped(W, "W", "k", "m")
    checks.shaped(rows, "rows", "m", "P")
    if W.shape[1] != len(rows):
        raise ValueError(f"W mixes {W.shape[1]} rows, but {len(rows)} came")
    if keep is not None and (keep.ndim != 2 or len(keep) != len(W)):
        raise ValueError(f"keep must hold {len(W)} models, got {tuple(keep.shape)}")
    old = keep if keep is None or columns is None else keep[:, columns]
    if old is not None and old.shape[1] != rows.shape[1]:
        raise ValueError(f"rows have {rows.shape[1]} columns, but there are {old.shape[1]} to fill")
    filled = (W != 0).any(1)
    if old is None and (columns is not None or not filled.all()):
        raise ValueError("some models get nothing to mix; say in `keep` what they were")
    new = W.to(rows.dtype) @ rows
    # a product would turn -0.0 into 0.0: copy instead
    single = ((W != 0).sum(1) == 1) & (W == 1).any(1)
    if single.any():
        new[single] = rows[W[single].argmax(1)]
    if old is not None:
        new = torch.where(filled[:, None], new, old)
    if keep is None or columns is None:
        return new
    whole = keep.clone()
    whole[:, columns] = new
    return whole


def move(W: Tensor, rows: Tensor, start: Tensor, rate: float = 1.0) -> Tensor:
    """A server step along the mixed updates: start + rate * W @ (rows - start), (P,) -> (P,).

    W is (1, m) and need not sum to 1; with `average` and rate 1 this is the average itself.

    >>> move(uniform(2), torch.tensor([[1.0], [3.0]]), torch.tensor([0.0]), rate=0.5).tolist()
    [1.0]
    """
    checks.shaped(start, "start", "P")
    checks.shaped(rows, "rows", "m", "P")
    checks.shaped(W, "W", "1", "m")
    if W.shape != (1, len(rows)) or rows.shape[1] != len(start):
        shapes = ", ".join(str(tuple(t.shape)) for t in (W, rows, start))
        raise ValueError(f"W, rows and start do not fit: {shapes}")
    return start + rate * (W.to(rows.dtype) @ (rows - start))[0]


def step_norm(steps: Tensor, momentum: float = 0.0) -> Tensor:
    """How much a gradient counts after so many local steps, |a|_1 (FedNova): (m,) -> (m,).

    The number of steps; with momentum, the sum over k up to it of (1 - momentum^k)/(1 - momentum).

    >>> step_norm(torch.tensor([1, 2]), momentum=0.5).tolist()
    [1.0, 2.5]
    """
    checks.weights(steps, "steps", len(steps))
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum must lie in [0, 1), got {momentum}")
    tau = steps.double()
    return (tau - momentum * (1 - momentum**tau) / (1 - momentum)) / (1 - momentum)


def normalised(sizes: Tensor, norms: Tensor) -> Tensor:
    """FedNova's weights of the updates, for `move`: (m,), (m,) -> (1, m).

    tau_eff p_i / |a_i|: a client that made more steps does not count for more. Equal norms give
    `average`; a client that made no step counts for nothing.

    >>> normalised(torch.tensor([1.0, 1.0]), torch.tensor([1.0, 3.0])).tolist()
    [[1.0, 0.3333333333333333]]
    """
    checks.weights(norms, "norms", len(sizes))
    a = norms.double()
    p = average(sizes)
    return torch.where(a > 0, (p @ a) * p / torch.where(a > 0, a, 1), 0)


def control(c: Tensor, changes: Tensor, n: int) -> Tensor:
    """SCAFFOLD's server control variate, moved by its clients' changes: (P,), (m, P), n -> (P,).

    n counts all clients, also those that were not drawn.

    >>> control(torch.tensor([1.0]), torch.tensor([[2.0], [4.0]]), n=3).tolist()
    [3.0]
    """
    checks.shaped(c, "c", "P")
    checks.shaped(changes, "changes", "m", "P")
    if changes.shape[1] != len(c):
        raise ValueError(f"changes of {changes.shape[1]} numbers to a variate of {len(c)}")
    if n < max(len(changes), 1):
        raise ValueError(f"{len(changes)} changes from {n} clients")
    return c + changes.sum(0) / n


def merge(state: State, w: Replies, columns: Tensor | slice | None = None) -> State:
    """Each model becomes the size-weighted average of what its own clients trained.

    A model nobody answered for stays as it was. With `columns`, only these were sent and change.
    """
    if not w:
        return state
    labels = state.assign[w.clients]
    W = within(labels, w.counted(labels), state.k)  # (k, m)
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
