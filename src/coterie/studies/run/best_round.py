"""The round of a run that is taken: the best one on validation data, with its models at hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from coterie.core.best_by import Stop, choosable, full
from coterie.core.errors import ConfigError
from coterie.core.events import Listener
from coterie.core.types import Engine, State
from coterie.data.population import Population
from coterie.runs import checkpoint
from coterie.runs.checkpoint import Memories
from coterie.runs.choosing import Chooser, Taken
from coterie.runs.history import Row
from coterie.runs.records import RunFolder


@dataclass(frozen=True)
class End:
    """A round's end: its state, and what clients kept for themselves."""

    state: State
    memories: Memories


class BestRound:
    """The best round so far of a run that goes on, and whether enough came after it."""

    def __init__(self, stop: Stop | None, rows: Iterable[Row], saved: State | None) -> None:
        self.chooser = Chooser(stop, rows)
        self.end: End | None = None  # of the best round, if this process did it
        self.over = saved is not None and self.chooser.over(saved.round)

    @property
    def round(self) -> int | None:
        """The best round; None where none is chosen."""
        return self.chooser.best.round if self.chooser.best else None

    def see(self, state: State, rows: Iterable[Row], fed: Engine) -> bool:
        """Look at what a round was worth; whether it must be saved: it is the best, or the last."""
        better = self.chooser.see(rows)
        if better:
            self.end = End(state, {i: dict(m) for i, m in fed.memories().items()})
        self.over = self.chooser.over(state.round)
        return better or self.over

    def take(self, last: State, fed: Engine, folder: RunFolder | None, say: Listener) -> State:
        """The state that the run ends with; the federation then remembers what it did in it."""
        best = self.chooser.best
        if best is None or self.chooser.stop is None:
            return last
        metric = full(self.chooser.stop.metric)
        told = {"event": "taken", "round": best.round, "metric": metric, "value": best.value}
        say({**told, "last": last.round, "stopped": self.over})
        if best.round == last.round:
            return last
        end = self.end if self.end and self.end.state.round == best.round else None
        if end is None:
            assert folder is not None  # only a run that goes on did not do its best round itself
            end = saved_end(folder, best)
        fed.restore(end.memories)
        return end.state


def saved_end(folder: RunFolder, best: Taken) -> End:
    """The end of a run's best round, from its checkpoint."""
    found = checkpoint.load(checkpoint.at(folder.path / "checkpoints", best.round))
    return End(found.state, found.memories)


def expect_validation(
    stop: Stop | None, population: Population, metrics: Sequence[str] = ()
) -> None:
    """Refuse to choose a round where there is nothing to choose it by."""
    if stop is None:
        return
    if not population.validates:
        raise ConfigError(
            "stop asks for the best round, and there is no validation data to choose it by",
            code="C061",
            why="a round that is chosen on test data makes every test too good",
            fix="hold some back: validation_share=0.2 of coterie.partition or Population.of",
        )
    if full(stop.metric) not in (names := choosable(metrics)):
        raise ConfigError(
            f"{stop.metric!r} is not measured, so that no round can be chosen by it",
            code="C061",
            fix=f"one of {', '.join(names)}; metrics=[...] measures more",
        )
    if population.moves_at or population.arrives is not None:
        raise ConfigError(
            "stop asks for the best round of clients that change",
            code="C061",
            why="the best round may be one before the change",
            fix="leave out stop, or drift and arrivals in the partition",
        )
