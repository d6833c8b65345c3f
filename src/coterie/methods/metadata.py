"""Metadata: clusters are what the clients themselves come with, such as a region or a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import torch

from coterie.core.bounds import Share, dataclass
from coterie.core.errors import DataError
from coterie.core.suggest import similar
from coterie.core.types import Federation, State
from coterie.methods.group_once import round_in_groups
from coterie.tasks import Losses, Score, Solver
from coterie.words.grouping import canonical, closest
from coterie.words.server import ServerOptimiser

PLANTED = "group"  # the column of the groups that a partition planted


@dataclass(frozen=True)
class Metadata:
    """FedAvg among clients that have the same value in a column: what a person would try first.

    Nothing is learned about who belongs together, and nothing is asked of a client for it.
    """

    solver: Solver = Solver()
    fraction: Share = 1.0  # of clients drawn in a round
    column: str = ""  # whose values make the clusters; empty: the only one that the clients have
    server: ServerOptimiser = field(default=ServerOptimiser(), kw_only=True)  # of the average

    kind = "clustered"
    score = Score()  # every client tests its cluster's model

    def init(self, fed: Federation) -> State:
        """A model for each value, all alike at first."""
        values = self.values(fed)
        if not values:
            raise absent(self.column, fed)
        names = sorted(set(values))
        labels = canonical(torch.tensor([names.index(value) for value in values]))
        return State(fed.layout.initial.repeat(len(names), 1), labels)

    def round(self, state: State, fed: Federation) -> State:
        """FedAvg among those of the same value."""
        state = self.place(state, fed)
        return round_in_groups(state, fed, self.solver, self.fraction, self.server)

    def values(self, fed: Federation) -> Sequence[str]:
        """The value of each client, of those who were there at first; none if it is not known."""
        if self.column == PLANTED and fed.groups is not None:
            return [str(g) for g in fed.groups.tolist()]
        if not self.column and len(fed.columns) == 1:
            return next(iter(fed.columns.values()))
        return fed.columns.get(self.column, ())

    def place(self, state: State, fed: Federation) -> State:
        """A newcomer joins those of its value; of an unknown one, the model that fits it best."""
        if not len(state.unplaced):
            return state
        values = self.values(fed)
        model = {v: c for v, c in zip(values, state.assign.tolist(), strict=False) if c >= 0}
        told = [i for i in state.unplaced.tolist() if i < len(values) and values[i] in model]
        joined = [model[values[i]] for i in told]
        state = state.reassign(*(torch.tensor(t, dtype=torch.long) for t in (told, joined)))
        f = fed.ask(state.unplaced, Losses(), state)
        return state.reassign(f.clients, closest(f.values)) if f else state


def absent(column: str, fed: Federation) -> DataError:
    """The error about clients that do not say what they should be grouped by."""
    known = ", ".join(fed.columns)
    what = f"no column {column!r}" if column else "several columns" if known else "no column"
    fix = (
        f'metadata.column = "{next(iter(fed.columns))}"; they come with {known}'
        if known
        else 'say which columns of a CSV are about its owners: data.about = "site"; from Python, '
        "Population.of(..., columns={...}); or take planted groups: "
        f'metadata.column = "{PLANTED}"'
    )
    near = similar(column, list(fed.columns)) if column else ""
    said = f"the clients come with {what} to group them by"
    return DataError(said, code="D049", why=near, fix=fix)
