"""What a run is to do, whatever it trains: rounds, tests, and what is kept."""

from __future__ import annotations

from typing import Any, Literal

from coterie.config import Config
from coterie.core.best_by import Stop
from coterie.core.bounds import Count, Share, Whole
from coterie.core.bounds import dataclass as bounded


@bounded(frozen=True)
class Plan:
    """How long a run trains, when it is measured and what of it is kept, whatever it trains."""

    rounds: Whole
    every: Count = 1  # evaluate every so many rounds, and at the end
    last_k: Count = 10  # rounds in the mean over the last ones
    target: Share | None = None  # accuracy for rounds-to-target
    absent: Literal["last-known"] | None = None  # count who was not tested by its last known value
    metrics: tuple[str, ...] = ()  # measured beside accuracy and loss
    tuned: Whole = 0  # local epochs before one more test of everybody, after the last round
    first: Whole = 0  # evaluate after each of so many first rounds, too
    last: Whole = 0  # and of so many last ones
    everybody: Whole = 0  # first rounds in which every client takes part, whatever is drawn later
    checkpoint_every: Count = 1
    keep: Count = 2  # checkpoints kept
    stop: Stop | None = None  # take the best round on validation data, and end if none follows

    @classmethod
    def of(cls, config: Config) -> Plan:
        """The plan of an experiment file."""
        kept: dict[str, Any] = {
            "checkpoint_every": config.output.checkpoint_every,
            "keep": config.output.keep,
            "everybody": config.train.everybody,
        }
        when: dict[str, Any] = vars(config.evaluate)
        return cls(config.train.rounds, **when, **kept, stop=config.train.stop)

    def tests_at(self, round: int) -> bool:
        """Whether clients are tested after this round."""
        beside = round <= self.first or round > self.rounds - self.last
        return beside or round % self.every == 0 or round >= self.rounds

    def saves_at(self, round: int) -> bool:
        """Whether a checkpoint is written after this round."""
        return round % self.checkpoint_every == 0 or round >= self.rounds
