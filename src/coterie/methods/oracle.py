"""The oracle: FedAvg inside the groups that were planted. What clustering could reach at best."""

from __future__ import annotations

from dataclasses import field

from coterie.core.bounds import Share, dataclass
from coterie.core.errors import DataError
from coterie.core.types import Federation, State
from coterie.methods.group_once import round_in_groups
from coterie.tasks import Losses, Score, Solver
from coterie.words.grouping import closest
from coterie.words.server import ServerOptimiser


@dataclass(frozen=True)
class Oracle:
    """One model for each planted group. It is told what others must find out, also under drift."""

    solver: Solver = Solver()
    fraction: Share = 1.0  # of clients drawn in a round
    server: ServerOptimiser = field(default=ServerOptimiser(), kw_only=True)  # of the average

    kind = "clustered"
    score = Score()  # every client tests its group's model

    def init(self, fed: Federation) -> State:
        """A model for each group, all alike at first."""
        if fed.groups is None:
            raise DataError(
                "the oracle has nothing to tell",
                code="D047",
                why="no groups were planted in these clients, or they are on other machines",
                fix="choose another method, or a partition with groups: rotation, label-groups",
            )
        models = fed.layout.initial.repeat(int(fed.groups.max()) + 1, 1)
        return State(models, fed.groups.clone())

    def round(self, state: State, fed: Federation) -> State:
        """Everybody is where it belongs in this round; FedAvg inside each group."""
        if fed.groups is not None:
            state = state.reassign(fed.clients, fed.groups)
        state = self.place(state, fed)
        return round_in_groups(state, fed, self.solver, self.fraction, self.server)

    def place(self, state: State, fed: Federation) -> State:
        """Where newcomers belong nobody says: the model that fits their training data best."""
        if not len(state.unplaced):
            return state
        f = fed.ask(state.unplaced, Losses(), state)
        return state.reassign(f.clients, closest(f.values)) if f else state
