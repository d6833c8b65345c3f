"""Some layers for everybody, some for oneself: LG-FedAvg, FedPer, FedBN and FedRep.

Liang, Liu, Liu, Salakhutdinov, Morency: Think Locally, Act Globally: Federated Learning with Local
and Global Representations. 2020.
Arivazhagan, Aggarwal, Singh, Choudhary: Federated Learning with Personalization Layers. 2019.
Li, Jiang, Zhang, Kamp, Dou: FedBN: Federated Learning on Non-IID Features via Local Batch
Normalization. ICLR 2021.
Collins, Hassani, Mokhtari, Shakkottai: Exploiting Shared Representations for Personalized Federated
Learning. ICML 2021.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from coterie.core.bounds import Count, Share, dataclass
from coterie.core.types import (
    AnswerForm,
    Client,
    Federation,
    Known,
    Layout,
    Reply,
    Sent,
    State,
    Task,
)
from coterie.methods.fedavg import FedAvg, welcome
from coterie.tasks import (
    SGD,
    Score,
    Solver,
    SteppedTask,
    Stepwise,
    Train,
    Training,
    own_row,
    trained,
)


@dataclass(frozen=True)
class LGFedAvg(FedAvg):
    """All layers learn together; the lower ones stay on the client, the upper ones are averaged."""

    solver: Solver = Solver(lr=0.01, optimiser=SGD(momentum=0.5), epochs=10, batch=10)
    fraction: Share = 0.1  # of clients drawn in a round
    private: str = "~head"  # the layers that each client keeps; LeNet-5: "conv1,conv2,fc1"

    kind = "personal"

    @property
    def local(self) -> Task:
        """Plain SGD on everything."""
        return Train(self.solver, private=self.private)

    @property
    def score(self) -> Score:
        """Every client tests its own layers with the common ones."""
        return Score(private=self.private)

    def round(self, state: State, fed: Federation) -> State:
        """FedAvg on the columns that are not private."""
        state = self.place(state, fed)
        w = fed.ask(fed.sample(self.fraction), self.local, state)
        merged = self.server.merged(state, w, fed.layout.columns(f"~{self.private}"))
        return self.server.advance(state, merged, fed.layout)


@dataclass(frozen=True)
class PrivateFirst(Training, SteppedTask):
    """Train the private layers with the others frozen, then the others with the private frozen."""

    private: str = "head"
    epochs: Count = 10  # of the private layers
    fit: bool = False  # train the private layers alone, and send nothing

    @property
    def download(self) -> str:
        """Everything the client does not hold itself."""
        return f"~{self.private}"

    def answer_form(self, known: Known) -> AnswerForm:
        """The common layers, or nothing."""
        return {"value": known.layout.form("none" if self.fit else f"~{self.private}")}

    def stepwise(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Stepwise[Reply]:
        """Where one of the two parts has nothing that learns, only the other is trained."""
        common = f"~{self.private}"
        w = own_row(client, models, self.private, layout)
        if learns(self.private, layout):
            first = replace(self.solver, epochs=self.epochs, steps=0)
            w, _ = yield from trained(first, client, w, rng, train=self.private)
        if learns(common, layout) and not self.fit:
            w, _ = yield from trained(self.solver, client, w, rng, train=common)
        keep = {"private": w[layout.columns(self.private)].clone()}
        return Reply(w[:0] if self.fit else w[layout.columns(common)], keep=keep)


@dataclass(frozen=True)
class FedPer(LGFedAvg):
    """A common body and a head for each client, learned together; only the body is averaged."""

    solver: Solver = Solver()
    fraction: Share = 1.0  # of clients drawn in a round
    private: str = "head"  # the layers that each client keeps

    @property
    def fitting(self) -> PrivateFirst:
        """What a newcomer does: it trains the private layers alone."""
        return PrivateFirst(self.solver, self.private, self.solver.epochs, fit=True)

    def place(self, state: State, fed: Federation) -> State:
        """A newcomer takes the common layers and fits its own to them, of which nobody hears."""
        if not learns(self.private, fed.layout):
            return super().place(state, fed)
        return welcome(state, fed, self.fitting)


@dataclass(frozen=True)
class FedBN(FedPer):
    """FedAvg on everything but normalisation: each client keeps its own statistics and scales."""

    private: str = "norm"  # the layers that each client keeps


@dataclass(frozen=True)
class FedRep(FedPer):
    """A common body, and a head for each client, fitted to the body before the body learns."""

    solver: Solver = Solver(
        lr=0.01, optimiser=SGD(momentum=0.5), epochs=1, batch=10
    )  # its epochs are the body's
    fraction: Share = 0.1  # of clients drawn in a round
    private: str = "head"  # the layers that each client keeps
    head_epochs: Count = 10  # epochs of the private layers, before those of the body

    @property
    def local(self) -> PrivateFirst:
        """Head epochs, then body epochs."""
        return PrivateFirst(self.solver, self.private, self.head_epochs)

    @property
    def fitting(self) -> PrivateFirst:
        """A newcomer's head has its epochs, too."""
        return replace(self.local, fit=True)


def learns(names: str, layout: Layout) -> bool:
    """Whether there is a trainable parameter among these columns."""
    return bool((torch.arange(layout.size)[layout.columns(names)] < layout.trainable).any())
