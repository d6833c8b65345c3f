"""Who was trained on: a sample that a model loses less on is more likely one of them.

Yeom et al., CSF 2018. The area under the curve needs no threshold: it is the chance that a member
has a smaller loss than somebody who is none. Its interval is that of DeLong et al. 1988.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from coterie.core.layout import Layout

Z = 1.959964  # of a 95 % interval
SHUFFLES = 100


class Area(NamedTuple):
    """The area under the curve of an attack, its 95 % interval, and of how many samples it is."""

    auc: float
    low: float
    high: float
    members: int
    others: int


def losses(layout: Layout, row: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """(N,) what a model loses on each of some samples."""
    return cross_entropy(layout.predict(row, x), y, reduction="none").double()


def area(members: Tensor, others: Tensor) -> Area:
    """How well losses tell members from others.

    >>> area(torch.tensor([0.1, 0.2]), torch.tensor([0.2, 0.9])).auc
    0.875
    """
    above = rank(others, members)  # (m,) for each member the share of others that lose more
    below = 1 - rank(members, others)  # (n,) for each other the share of members that lose less
    auc = float(above.mean())
    spread = sum(
        float(v.var()) / len(v) if len(v) > 1 else 0.25 for v in (above, below)
    )  # of a single sample nothing is known: the widest there is
    reach = Z * spread**0.5
    low, high = max(0.0, auc - reach), min(1.0, auc + reach)
    return Area(round(auc, 4), round(low, 4), round(high, 4), len(members), len(others))


def rank(among: Tensor, these: Tensor) -> Tensor:
    """For each of these the share of the others that is larger, ties by half."""
    order = among.sort().values
    n = len(order)
    larger = n - torch.searchsorted(order, these, right=True)
    equal = n - torch.searchsorted(order, these, right=False) - larger
    return (larger + 0.5 * equal).double() / n


def shuffled(members: Tensor, others: Tensor, rng: torch.Generator) -> float:
    """The mean area where who is a member was drawn at random: a half, or the attack is broken."""
    both, m = torch.cat([members, others]), len(members)
    found = []
    for _ in range(SHUFFLES):
        mixed = both[torch.randperm(len(both), generator=rng)]
        found.append(float(rank(mixed[m:], mixed[:m]).mean()))
    return round(sum(found) / len(found), 4)
