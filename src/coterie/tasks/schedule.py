"""Schedules as data: what the learning rate is multiplied by, round after round."""

from __future__ import annotations

from math import cos, pi
from typing import Literal

from coterie.core.bounds import Count, Decay, Share, Whole, dataclass
from coterie.core.types import Sendable

DECAY = {"step": 0.1, "exponential": 0.99}  # what is usual, where nothing is said


@dataclass(frozen=True)
class Schedule(Sendable):
    """The learning rate as a function of the round, and of how many are planned: of nothing else.

    So a run that was stopped goes on with the rates it would have had.

    >>> step = Schedule("step", decay=0.5, every=2)
    >>> [step(t, 6) for t in range(6)]
    [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
    >>> [round(Schedule("cosine", warmup=2)(t, 6), 2) for t in range(6)]
    [0.5, 1.0, 1.0, 0.85, 0.5, 0.15]
    """

    kind: Literal["constant", "step", "exponential", "cosine"] = "constant"
    warmup: Whole = 0  # rounds in which it rises evenly to its value, before the kind begins
    decay: Share | None = None  # step, exponential: the factor; not set: 0.1, 0.99
    every: Count = 10  # step: rounds between two multiplications
    end: Decay = 0.0  # cosine: the share of the rate that it falls to

    @property
    def varies(self) -> bool:
        """Whether rounds differ at all."""
        return self.kind != "constant" or self.warmup > 0

    @property
    def planned(self) -> bool:
        """Whether it also depends on the number of rounds planned."""
        return self.kind == "cosine"

    def __call__(self, round: int, rounds: int) -> float:
        """The factor of a round, counted from 0, of so many that are planned."""
        if round < self.warmup:
            return (round + 1) / self.warmup
        since = round - self.warmup
        match self.kind:
            case "constant":
                return 1.0
            case "cosine":
                done = min(1.0, since / max(1, rounds - self.warmup))
                return self.end + (1 - self.end) * (1 + cos(pi * done)) / 2
        times = since // self.every if self.kind == "step" else since
        return float((self.decay or DECAY[self.kind]) ** times)
