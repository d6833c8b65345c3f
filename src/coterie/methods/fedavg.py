"""FedAvg and the two that differ from it by a line.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep Networks
from Decentralized Data. AISTATS 2017.
Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks.
MLSys 2020.
"""

from __future__ import annotations

from dataclasses import field, replace

from torch import Tensor

from coterie.core.bounds import Count, NonNegative, Share, dataclass
from coterie.core.types import Federation, State, Task
from coterie.tasks import Score, Solver, Train
from coterie.words.server import ServerOptimiser


@dataclass(frozen=True)
class FedAvg:
    """One model for everybody: the size-weighted average of what the drawn clients trained."""

    solver: Solver = Solver()
    fraction: Share = 1.0  # of clients drawn in a round
    server: ServerOptimiser = field(default=ServerOptimiser(), kw_only=True)  # of the average

    kind = "shared"

    @property
    def score(self) -> Score:
        """Every client tests the model it holds."""
        return Score()

    @property
    def local(self) -> Task:
        """What a client does in a round."""
        return Train(self.solver)

    def asks(self, rounds: int, sizes: Tensor) -> list[tuple[Task, int]]:
        """What a client is asked at most, and how often: for its privacy account."""
        return [(self.local, rounds)]

    def init(self, fed: Federation) -> State:
        """The initial model, held by everybody."""
        return State.shared(fed.layout.initial, len(fed.clients))

    def round(self, state: State, fed: Federation) -> State:
        """Draw, train, average."""
        state = self.place(state, fed)
        w = fed.ask(fed.sample(self.fraction), self.local, state)
        return self.server.advance(state, self.server.merged(state, w), fed.layout)

    def place(self, state: State, fed: Federation) -> State:
        """A newcomer takes the one model there is."""
        return state.give_unplaced(0)


def welcome(state: State, fed: Federation, task: Task, **send: Tensor) -> State:
    """Newcomers take the one model there is and do this with it, of which nobody hears."""
    new = state.unplaced
    state = state.give_unplaced(0)
    if len(new):
        fed.ask(new, task, state, **send)
    return state


@dataclass(frozen=True)
class FedAvgFT(FedAvg):
    """FedAvg whose clients tune a copy of the last layer on their own data before they use it."""

    tune_epochs: Count = 5  # epochs of tuning at evaluation
    tune: str = "head"  # the columns that are tuned: head, all, or names of layers

    kind = "personal"

    @property
    def score(self) -> Score:
        """Tested as received, and after tuning; what was tuned is never sent back."""
        return Score(replace(self.solver, epochs=self.tune_epochs, steps=0), train=self.tune)


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg with the local objective F_i(w) + (mu/2) |w - w_global|^2."""

    mu: NonNegative = 0.01  # strength of the pull to the global model

    @property
    def local(self) -> Task:
        """Training anchored at the model it is sent."""
        return Train(replace(self.solver, prox=self.mu))
