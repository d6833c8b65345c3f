"""Local training: what each client can do alone, the line every other method must beat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from coterie.core.bounds import Share, dataclass
from coterie.core.types import Federation, State
from coterie.tasks import Score, Solver, Train


@dataclass(frozen=True)
class Local:
    """Each client trains from the common initial model on its own data, and never communicates."""

    solver: Solver = Solver()
    fraction: Share = 1.0  # of clients that train in a round: the same total work as the others

    kind = "personal"
    score = Score(private="all")  # each client tests the model it keeps
    refuses: ClassVar[Mapping[str, str]] = {"server": "nothing is averaged"}

    def init(self, fed: Federation) -> State:
        """The initial model, which everybody knows; nothing is ever added to it."""
        return State.shared(fed.layout.initial, len(fed.clients))

    def round(self, state: State, fed: Federation) -> State:
        """Whoever is drawn trains on from where it stands. Every column is private."""
        state = self.place(state, fed)
        fed.ask(fed.sample(self.fraction), Train(self.solver, private="all"), state)
        return state

    def place(self, state: State, fed: Federation) -> State:
        """A newcomer starts from the initial model, like everybody."""
        return state.give_unplaced(0)
