"""Landmarks: among very many clients, group some and let the others join as newcomers do.

What takes n^2 time and memory is then bounded, whatever n is; placing the others costs n.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from coterie.core.rng import stream
from coterie.core.types import Federation, Replies
from coterie.tasks.signature import spread

LANDMARKS = 2000  # clients that are grouped at once, unless the user says otherwise
KEPT = 1000  # clients whose distances are kept in the state, for whoever looks at it later


def landmarks(r: Replies, most: int, fed: Federation) -> tuple[Replies, Replies]:
    """At most `most` of those who answered, drawn at random, and the others; 0: everybody."""
    if not most or len(r.clients) <= most:
        return r, pick(r, torch.empty(0, dtype=torch.long))
    order = torch.randperm(len(r.clients), generator=stream(fed.seed, "landmarks", fed.round))
    return pick(r, order[:most].sort().values), pick(r, order[most:].sort().values)


def pick(r: Replies, rows: Tensor) -> Replies:
    """Some of the replies, by increasing position."""
    extra = {name: t[rows] for name, t in r.extra.items()}
    return replace(
        r, clients=r.clients[rows], values=r.values[rows], sizes=r.sizes[rows], extra=extra
    )


def kept(D: Tensor, clients: Tensor, n: int) -> dict[str, Tensor]:
    """The distances as a state remembers them: (n, n), NaN for whoever did not answer.

    With more than `KEPT` clients, those among `KEPT` of them alone, at even steps, and whose they
    are: `compared`. A state is saved every round, and 10,000 clients would make it 400 MB.
    """
    if n <= KEPT:
        return {"distance": spread(D, clients, n)}
    some = torch.linspace(0, len(D) - 1, min(len(D), KEPT), dtype=torch.float64).round().long()
    return {"distance": D[some[:, None], some], "compared": clients[some]}
