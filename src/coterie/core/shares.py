"""How much one client may count for: its samples are what it says they are."""

from __future__ import annotations

import torch
from torch import Tensor


def capped(sizes: Tensor, most: float, labels: Tensor | None = None) -> Tensor:
    """The sizes with nobody above a share of `most` among those of its label: (m,) -> (m,).

    Of two, one always has half or more: groups of one or two stay as they are. The very tensor
    that was given comes back where nobody is above.

    >>> capped(torch.tensor([1.0, 2.0, 97.0]), 0.5).tolist()
    [1.0, 2.0, 3.0]
    >>> capped(torch.tensor([1.0, 97.0, 97.0, 5.0]), 0.5, torch.tensor([0, 0, 1, 1])).tolist()
    [1.0, 97.0, 97.0, 5.0]
    """
    if most >= 1 or not len(sizes):
        return sizes
    if labels is None:
        labels = torch.zeros(len(sizes), dtype=torch.long)
    out = sizes
    for label in labels.unique().tolist():
        mine = (labels == label).nonzero().flatten()
        limit = ceiling(sizes[mine].double(), most) if len(mine) > 2 else None
        if limit is not None:
            out = out.index_copy(0, mine, sizes[mine].clamp(max=limit))
    return out


def ceiling(sizes: Tensor, most: float) -> float | None:
    """The size at which those above it have a share of `most` each; None if nobody is above.

    >>> ceiling(torch.tensor([1.0, 1.0, 8.0, 10.0]), 0.25)
    1.0
    """
    if float(sizes.max()) <= most * float(sizes.sum()):
        return None
    down = sizes.sort(descending=True).values
    for above in range(1, len(down)):
        if above * most >= 1:
            break
        limit = most * float(down[above:].sum()) / (1 - above * most)
        if float(down[above]) <= limit:
            return limit
    return float(sizes[sizes > 0].min())  # so small a share that all count alike


def held_back(
    who: Tensor, labels: Tensor, declared: Tensor, sizes: Tensor, most: float
) -> dict[int, tuple[float, float]]:
    """Those who count for less among their label than they declare: both shares, by client."""
    found = {}
    counted = capped(sizes, most, labels)
    for label in labels[labels >= 0].unique().tolist():
        mine = labels == label
        said, given = (x[mine] / x[mine].sum() for x in (declared, counted))
        for i, a, b in zip(who[mine].tolist(), said.tolist(), given.tolist(), strict=True):
            if b < a - 1e-9:
                found[i] = (a, b)
    return found
