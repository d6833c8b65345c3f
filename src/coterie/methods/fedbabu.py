"""FedBABU: the body learns under a head that stays random; each client fits the head before use.

Oh, Kim, Yun: FedBABU: Toward Enhanced Representation for Federated Image Classification. ICLR 2022.
"""

from __future__ import annotations

from dataclasses import replace

from coterie.core.bounds import Count, dataclass
from coterie.core.types import Federation, State, Task
from coterie.methods.fedavg import FedAvg
from coterie.tasks import Score, Train


@dataclass(frozen=True)
class FedBABU(FedAvg):
    """FedAvg on the body alone; nobody trains the initial head until a client makes it its own."""

    tune_epochs: Count = 5  # epochs of tuning at evaluation
    tune: str = "head"  # the columns that are tuned: head, all, or names of layers

    kind = "personal"

    @property
    def local(self) -> Task:
        """Steps on the body; the head, which everybody has from the start, is never sent."""
        return Train(self.solver, train="~head", private="head")

    @property
    def score(self) -> Score:
        """Tested under the random head, and after tuning, which is what counts."""
        adapt = replace(self.solver, epochs=self.tune_epochs, steps=0)
        return Score(adapt, private="head", train=self.tune)

    def round(self, state: State, fed: Federation) -> State:
        """Draw, train the body, average it."""
        state = self.place(state, fed)
        w = fed.ask(fed.sample(self.fraction), self.local, state)
        merged = self.server.merged(state, w, fed.layout.columns("~head"))
        return self.server.advance(state, merged, fed.layout)
