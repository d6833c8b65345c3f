"""How clients' samples change as rounds go by: when, how fast, and who has which meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Course(NamedTuple):
    """When those who drift have others' samples, and how many of them.

    >>> [Course(3, "gradual", 4).phase(t) for t in (2, 3, 4, 6, 9)]
    [0.0, 0.25, 0.5, 1.0, 1.0]
    >>> [Course(3, "recurring", 2).phase(t) for t in range(2, 9)]
    [0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]
    """

    at: int = 0  # the round of the first change; 0: there is none
    pattern: str = "sudden"  # or gradual, or recurring
    span: int = 1  # rounds that a gradual change takes, or that a state lasts which recurs

    def phase(self, round: int) -> float:
        """Of their samples, the share that is another's after so many rounds."""
        since = round - self.at
        if not self.at or since < 0:
            return 0.0
        if self.pattern == "gradual":
            return min(1.0, (since + 1) / self.span)
        return float(self.pattern != "recurring" or since // self.span % 2 == 0)

    def moved(self, round: int) -> bool:
        """Whether those who drift belong to the other group: once half of their samples do."""
        return self.phase(round) >= 0.5

    def turns(self, until: int) -> list[int]:
        """The rounds in which somebody comes to belong to another group.

        >>> Course(3, "gradual", 4).turns(20), Course(3, "recurring", 5).turns(20)
        ([4], [3, 8, 13, 18])
        """
        return [t for t in range(1, until + 1) if self.moved(t) != self.moved(t - 1)]


def between(
    parts: Sequence[Tensor], moves: Sequence[int], share: float, draw: Callable[[int], Tensor]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Who has which samples when each has given away a share of its own, and as whose it sees each.

    `draw` is the order in which a client gives them away. No sample is lost and none is there
    twice; a client's own come first.

    >>> two = [torch.tensor([0, 1]), torch.tensor([2, 3])]
    >>> held, seen = between(two, [1, 0], 0.5, lambda i: torch.arange(2))
    >>> [part.tolist() for part in held], [part.tolist() for part in seen]
    ([[1, 2], [3, 0]], [[0, 1], [1, 0]])
    """
    gone, left = [], []
    for i, part in enumerate(parts):
        order = draw(i) if moves[i] != i else torch.arange(len(part))
        count = int(share * len(part) + 0.5) if moves[i] != i else 0
        gone.append(part[order[:count].sort().values])
        left.append(part[order[count:].sort().values])
    held = tuple(torch.cat([left[i], gone[j]]) for i, j in enumerate(moves))
    seen = tuple(
        torch.cat([torch.full_like(left[i], i), torch.full_like(gone[j], j)])
        for i, j in enumerate(moves)
    )
    return held, seen
