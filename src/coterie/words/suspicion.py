"""Suspicion: whose updates lie apart from those of its cluster, round after round.

An update is held against the median update of its cluster by where it points and by how long it is.
How far updates usually scatter, the cluster itself says (the median absolute deviation, as in the
modified z-score of Iglewicz and Hoaglin).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from coterie.core.types import Replies, State
from coterie.words.robust import median, middle

SEEN = "merge_seen"  # (n, 3) rounds in which a client was looked at, pointed elsewhere, was long
DEVIATION = 1.4826  # a standard deviation in median deviations, if numbers are normal
FAR = 3.5  # deviations: the usual bound of the modified z-score
LEAST_ANGLE, LEAST_LENGTH = 0.05, 0.1  # deviations below which nobody scatters: cosine, logarithm
COMPANY = 5  # updates of a cluster that it takes to tell who lies apart
ROUNDS, MOST = 3, 0.5  # a suspect was looked at in so many rounds, and lay apart in more than this


def deviations(x: Tensor, least: float) -> Tensor:
    """By how many deviations each number is off the median: (m,) -> (m,).

    >>> deviations(torch.tensor([1.0, 2.0, 3.0, 2.0, 50.0]), 0.1).round().tolist()
    [-1.0, 0.0, 1.0, 0.0, 32.0]
    """
    off = x - middle(x)
    return off / (DEVIATION * middle(off.abs())).clamp(min=least)


def apart(updates: Tensor) -> Tensor:
    """Which updates point elsewhere, and which are much longer or shorter: (m, P) -> (m, 2).

    >>> one = torch.tensor([[1.0, 0.1], [1.0, -0.1], [1.1, 0.0], [0.9, 0.0], [1.0, 0.0]])
    >>> apart(torch.cat([one, -one[:1], 9 * one[:1]])).tolist()[-3:]
    [[False, False], [True, False], [False, True]]
    """
    updates = updates.double()
    points = cosine_similarity(updates, median(updates)[None], dim=1)
    length = updates.norm(dim=1).clamp(min=1e-30).log()
    elsewhere = deviations(points, LEAST_ANGLE) < -FAR
    return torch.stack([elsewhere, deviations(length, LEAST_LENGTH).abs() > FAR], 1)


def watch(state: State, w: Replies, columns: Tensor | slice | None = None) -> State:
    """The state that remembers who lay apart this time; the models are those of before merging."""
    columns = slice(None) if columns is None else columns
    seen = state.memory.get(SEEN, torch.empty(0, 3, dtype=torch.long))
    seen = torch.cat([seen, seen.new_zeros(len(state.assign) - len(seen), 3)])
    labels = state.assign[w.clients]
    for c in labels.unique().tolist():
        mine = labels == c
        if int(mine.sum()) < COMPANY:
            continue
        found = apart(w.values[mine] - state.models[c, columns])
        looked = torch.cat([torch.ones(len(found), 1, dtype=torch.bool), found], 1)
        seen = seen.index_add(0, w.clients[mine], looked.long())
    return state.hold(**{SEEN: seen})


def suspects(state: State) -> dict[int, tuple[int, int, int]]:
    """Who lies apart from its cluster in most rounds: by client, what the state remembers of it."""
    seen = state.memory.get(SEEN, torch.empty(0, 3, dtype=torch.long))
    odd = seen[:, 1:].amax(1) > MOST * seen[:, 0]
    who = (odd & (seen[:, 0] >= ROUNDS)).nonzero().flatten().tolist()
    return {i: (int(seen[i, 0]), int(seen[i, 1]), int(seen[i, 2])) for i in who}
