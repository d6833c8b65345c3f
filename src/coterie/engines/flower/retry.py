"""Rounds without a quorum: abandoned, nothing of them is kept, and done again with other draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from coterie.core.errors import DivergedError, QuorumError
from coterie.core.types import Engine, Evaluation, Federation, Method, State


class AbandonedError(QuorumError):
    """Too few clients answered a question of a round."""

    def __init__(
        self,
        round: int,
        answered: int,
        asked: int,
        needed: int,
        missing: Sequence[str],
        *,
        diverged: bool = False,
    ) -> None:
        shown = ", ".join(missing[:10]) + (", ..." if len(missing) > 10 else "")
        super().__init__(
            f"{answered} of {asked} clients answered in round {round + 1}, {needed} are needed",
            code="Q001",
            where=f"without a usable answer: {shown}",
        )
        self.round, self.diverged = round, diverged


@dataclass(frozen=True)
class Retrying:
    """A method whose rounds are tried up to `attempts` times. A round commits whole or not at all:
    an abandoned attempt leaves the state as it was, bit for bit."""

    method: Method
    attempts: int
    tell: Callable[[dict[str, Any]], None] = field(default=lambda event: None, repr=False)

    def __repr__(self) -> str:
        return repr(self.method)

    @property
    def score(self) -> Evaluation:
        """How a client of the method is tested."""
        return self.method.score

    def init(self, fed: Federation) -> State:
        """The state before the first round."""
        return self._tried(fed, self.method.init)

    def round(self, state: State, fed: Federation) -> State:
        """One round."""
        return self._tried(fed, lambda view: self.method.round(state, view))

    def place(self, state: State, fed: Federation) -> State:
        """Give a model to newcomers and to whoever missed the call."""
        return self._tried(fed, lambda view: self.method.place(state, view))

    def _tried(self, fed: Federation, work: Callable[[Federation], State]) -> State:
        engine = cast(Engine, fed)  # as `run` gives it to a method
        last: AbandonedError | None = None
        for attempt in range(self.attempts):
            try:
                return work(engine.at(engine.round, attempt=attempt) if attempt else engine)
            except AbandonedError as fault:
                last = fault
                event = {"event": "abandoned", "round": fault.round + 1, "attempt": attempt + 1}
                self.tell({**event, "why": f"{fault.what}; {fault.where}"})
        assert last is not None
        if last.diverged:
            raise DivergedError(
                last.what,
                code="R014",
                where=last.where,
                why="every update that is missing was not finite; the learning rate is probably "
                "too high for this model",
                fix="train.lr a tenth of what it is; the last whole round is still saved",
            ) from last
        raise QuorumError(
            last.what,
            code="Q001",
            where=last.where,
            why=f"the round was abandoned {self.attempts} times (engine.max_abandoned)",
            fix="bring the clients back and resume; or lower engine.quorum, or raise "
            "engine.deadline",
        ) from last
