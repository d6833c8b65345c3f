"""The few types everything rests on: State, Task, Reply, Replies, Federation, Method.

n clients, m that answered, k models, P numbers in a model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

from coterie.core.answers import LARGEST_LOSS, Form
from coterie.core.answers import AnswerForm as AnswerForm
from coterie.core.client import Client as Client
from coterie.core.errors import ConfigError
from coterie.core.known import Known as Known
from coterie.core.layout import Layout as Layout
from coterie.core.ledger import Asked as Asked
from coterie.core.recipe import Recipe as Recipe
from coterie.core.releases import Release as Release
from coterie.core.sendable import Sendable as Sendable
from coterie.core.sendable import place_of as place_of
from coterie.core.shares import capped
from coterie.core.state import State as State

Receives = Literal["own", "all", "nothing"]
Sent = Mapping[str, Tensor]  # one client's rows of what was sent beside the model
VALIDATION = "validation"  # the stage of a test on the samples that a client holds back


@dataclass(frozen=True)
class Reply:
    """What one client answers. `keep` stays with the client: its private memory, never sent."""

    value: Tensor
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    keep: Mapping[str, Tensor] = field(default_factory=dict)
    alone: str = ""  # why an engine that serves many at once had to serve this client by itself


@dataclass(frozen=True)
class Replies:
    """What came back: row j is from client `clients[j]`. Those who failed are simply absent.

    Its length is the number of those who answered, so that it is false where nobody did.
    """

    clients: Tensor  # (m,) strictly increasing
    values: Tensor  # (m, ...)
    sizes: Tensor  # (m,)
    extra: Mapping[str, Tensor] = field(default_factory=dict)  # (m, ...) small companions
    most: float = 1.0  # share of the samples of a group of more than two that one may count for

    def __post_init__(self) -> None:
        lengths = {len(t) for t in (self.clients, self.values, self.sizes, *self.extra.values())}
        if len(lengths) > 1:
            raise ValueError(f"replies of unequal lengths {sorted(lengths)}")
        if (self.clients.diff() <= 0).any():
            raise ValueError("replies must be in increasing client order, each client once")

    def __len__(self) -> int:
        return len(self.clients)

    def counted(self, labels: Tensor | None = None) -> Tensor:
        """(m,) the sizes as they weigh among those of the same label, or among all."""
        return capped(self.sizes, self.most, labels)

    def spread(self, n: int, fill: float = 0.0) -> Tensor:
        """(n, ...) with each reply at its client's index and `fill` where nobody answered."""
        blank = self.values.new_full((n, *self.values.shape[1:]), fill)
        return blank.index_copy(0, self.clients, self.values)


class Task(Sendable, ABC):
    """What a client can be asked: a frozen dataclass of plain values, never a closure, that can be
    printed, compared, sent over a wire and run by any engine."""

    receives: ClassVar[Receives] = "own"
    needed: ClassVar[bool] = True  # False: a round goes on though nobody's answer can be used

    @property
    def download(self) -> str:
        """The columns of the model that travel to the client."""
        return "all"

    @property
    def trains(self) -> Recipe | None:
        """The recipe that it trains with; None if it only reads."""
        return None

    @property
    def trainings(self) -> int:
        """How many trainings it does with that recipe."""
        return 1

    def answer_form(self, known: Known) -> AnswerForm | None:
        """What an answer may be: type, shape and range of each tensor; None: only answers can tell.

        An answer of another form is refused at the door, and its client named.
        """
        return None

    def spends(self, known: Known) -> Sequence[Release] | None:
        """What of a client's privacy its answer spends; None: no noise hides a sample in it."""
        return None

    @abstractmethod
    def __call__(
        self,
        client: Client,
        models: Tensor,  # "own": (P,); "all": (k, P); "nothing": (0,)
        sent: Sent,
        layout: Layout,
        rng: torch.Generator,
    ) -> Reply:
        """Run on the client, with nothing but what is its own and what was sent."""


class Evaluation(Task):
    """A test that replies (stages, 2), accuracy and loss; a row is NaN if there are no samples."""

    def answer_form(self, known: Known) -> AnswerForm:
        """Accuracy and loss for each stage."""
        shape = (len(self.stages), 2)
        return {"value": Form("float64", shape, 0, (1.0, LARGEST_LOSS), blank=True)}

    @property
    @abstractmethod
    def stages(self) -> tuple[str, ...]:
        """The names of the rows of the reply."""

    def validated(self) -> Evaluation:
        """The same test with one stage more, "validation": its last model on what the client holds
        back. An evaluation of your own that does not say how cannot choose a round."""
        raise ConfigError(
            f"{type(self).__name__} does not say how a client is tested on validation samples",
            code="C061",
            fix="give it a method `validated`, or let the method be tested by coterie.Score; or "
            "leave out data.validation_share",
        )

    @property
    @abstractmethod
    def private(self) -> str:
        """The columns that each client has of its own."""

    @property
    @abstractmethod
    def train(self) -> str:
        """The columns that learn, where a client adapts the model before its last test."""

    @property
    @abstractmethod
    def held(self) -> Task:
        """The question for the very model that is tested last: (P,)."""


class Federation(Protocol):
    """All that a method may know of the world."""

    @property
    def clients(self) -> Tensor:
        """(n,) the ids 0..n-1."""

    @property
    def sizes(self) -> Tensor:
        """(n,) training samples of each client, float64."""

    @property
    def classes(self) -> int:
        """How many classes the labels have."""

    @property
    def layout(self) -> Layout:
        """How a model is a row."""

    @property
    def public(self) -> Tensor | None:
        """Samples the server itself holds (indicator samples), if any."""

    @property
    def groups(self) -> Tensor | None:
        """(n,) the groups planted in a simulation: for a method that shall know them, no other."""

    @property
    def columns(self) -> Mapping[str, Sequence[str]]:
        """What the clients come with: of each column, the value of every client."""

    @property
    def seed(self) -> int:
        """The seed of the run, for a server's own draws."""

    @property
    def round(self) -> int:
        """The round this view is for; -1 before the first."""

    def sample(self, fraction: float, among: Tensor | None = None) -> Tensor:
        """A random cohort: at least one client, in increasing order."""

    def ask(self, cohort: Tensor, task: Task, state: State, **send: Tensor) -> Replies:
        """Ask each client of the cohort. `send`: rows beside the model, (m, ...) or (1, ...)."""


class Method(Protocol):
    """A frozen dataclass: its fields are the hyper-parameters, its defaults the paper's."""

    @property
    def score(self) -> Evaluation:
        """How a client of this method is tested."""

    def init(self, fed: Federation) -> State:
        """The state before the first round."""

    def round(self, state: State, fed: Federation) -> State:
        """One round."""

    def place(self, state: State, fed: Federation) -> State:
        """Give a model to newcomers and to whoever missed the call."""


class Engine(Federation, Protocol):
    """A federation that can be moved between rounds, read out and put back: what `run` drives."""

    everybody: int  # first rounds in which every client is drawn, whatever share is asked for
    protected: bool  # whether all that leaves a client must be under noise

    @property
    def names(self) -> Sequence[str]:
        """(n,) the clients' names."""

    @property
    def notes(self) -> Sequence[str]:
        """What a user should know of how the clients are reached."""

    @property
    def ledger(self) -> list[Asked]:
        """All that was asked since it was last emptied."""

    def at(
        self, round: int, purpose: str = "train", attempt: int = 0, spare: Tensor | None = None
    ) -> Engine:
        """The same federation as seen in one round; its random addresses start anew, other ones
        for each `attempt` at it. The round goes on without the answers of `spare` clients."""

    def present(self, clients: Tensor) -> Tensor:
        """Those of some clients who are there in this round; newcomers come later."""

    def held_back(self, asked: Sequence[Asked], state: State) -> Mapping[int, tuple[float, float]]:
        """Who that answered counts for less of its cluster than it declares: the two shares."""

    def loudest(self) -> str:
        """Whose numbers in the last answers are the largest, in words; "" if nobody is known."""

    def close(self) -> None:
        """End whatever was started to reach the clients; a further question starts it again."""

    def memories(self) -> Mapping[int, Mapping[str, Tensor]]:
        """The private memory of every client, for the checkpoint."""

    def restore(self, memories: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Put private memories back."""
