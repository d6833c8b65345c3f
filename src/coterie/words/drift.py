"""Words for what changes while clients train: who pulls elsewhere, and which group pulls apart.

A client's pull is the update of its last layer, summed over some rounds: (h,).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from coterie.core import checks
from coterie.words.distance import cosine_distance
from coterie.words.grouping import cut_k


def lean(pull: Tensor, heads: Tensor, assign: Tensor) -> Tensor:
    """How much each client pulls from its own cluster towards each other: (n, h), (k, h) -> (n, k).

    The cosine between a client's pull and the way from its cluster's last layer to another's, less
    what its peers do in the median: what all do is training, not drift. 0 towards its own cluster,
    and for a client that is not placed or did not pull.

    >>> heads = torch.tensor([[0.0, 0.0], [0.0, 1.0]])
    >>> pull = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 0.0]])
    >>> lean(pull, heads, torch.tensor([0, 0, 0])).tolist()
    [[0.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    """
    checks.rows(pull, "pull")
    checks.rows(heads, "heads")
    out = pull.new_zeros(len(pull), len(heads))
    for c in range(len(heads)):
        peers = ((assign == c) & pull.any(1)).nonzero().flatten()
        if len(peers):
            there = normalize(heads - heads[c], dim=1)  # (k, h): from this cluster to each
            toward = normalize(pull[peers], dim=1) @ there.T  # (peers, k)
            out[peers] = toward - toward.median(0).values.clamp(min=0)
    return out


def sides(pull: Tensor) -> tuple[Tensor, float]:
    """The two sides that a cluster's clients fall into, and how alike these pull: (m, h) -> (m,).

    The second number is the cosine between the mean pulls of the two sides; 1, and no sides, where
    one of them would have a single client.

    >>> sides(torch.tensor([[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0], [-1.0, 0.1]]))[0].tolist()
    [0, 0, 1, 1]
    """
    checks.shaped(pull, "pull", "m", "h")
    if len(pull) < 4:
        return torch.zeros(len(pull), dtype=torch.long), 1.0
    labels = cut_k(cosine_distance(pull), 2)
    if labels.bincount().min() < 2:
        return torch.zeros_like(labels), 1.0
    here, there = (pull[labels == side].mean(0) for side in (0, 1))
    return labels, float(cosine_similarity(here, there, dim=0))
