"""Ditto: FedAvg for everybody, and beside it a model of one's own that stays near.

Li, Hu, Beirami, Smith: Ditto: Fair and Robust Federated Learning Through Personalization.
ICML 2021.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from coterie.core.bounds import NonNegative, dataclass
from coterie.core.types import Client, Federation, Layout, Reply, Sent, State, Task
from coterie.methods.fedavg import FedAvg, welcome
from coterie.tasks import Score, SteppedTask, Stepwise, Train, Training, own_row, trained


@dataclass(frozen=True)
class TrainBoth(Training, SteppedTask):
    """Train the model received and send it; train one's own, pulled to that one, and keep it."""

    lam: NonNegative = 0.1

    def stepwise(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Stepwise[Reply]:
        """Both see the same mini-batches, those that FedAvg and Local would see."""
        again = torch.Generator().manual_seed(rng.initial_seed())
        w, _ = yield from trained(self.solver, client, models, rng)
        own = own_row(client, models[:0], "all", layout)
        near = replace(self.solver, prox=self.lam)
        v, _ = yield from trained(near, client, own, again, anchor=models)
        return Reply(w, keep={"private": v})


@dataclass(frozen=True)
class Ditto(FedAvg):
    """FedAvg for w; each client also minimises F_i(v) + (lam/2) |v - w|^2 for a v that it keeps."""

    lam: NonNegative = 0.1  # lambda, strength of the pull to the global model

    kind = "personal"

    @property
    def local(self) -> Task:
        """Steps on w, and on v with lam (v - w) added to its gradient."""
        return TrainBoth(self.solver, self.lam)

    @property
    def score(self) -> Score:
        """Each client tests its v. Nobody is tested on w, which only serves to make them."""
        return Score(private="all")

    def place(self, state: State, fed: Federation) -> State:
        """A newcomer takes w and makes its v out of it; v^0 is for those who were there then."""
        task = Train(replace(self.solver, prox=self.lam), private="all")
        return welcome(state, fed, task, start=state.models)
