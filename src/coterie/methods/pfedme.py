"""pFedMe: each client's model solves its own problem near a common one, a Moreau envelope.

Dinh, Tran, Nguyen: Personalized Federated Learning with Moreau Envelopes. NeurIPS 2020.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from coterie.core.bounds import Count, NonNegative, Positive, dataclass
from coterie.core.types import AnswerForm, Client, Federation, Known, Layout, Reply, Sent, State
from coterie.methods.fedavg import FedAvg, welcome
from coterie.tasks import Score, Solver, Training, own_row
from coterie.words.mixing import move, uniform


@dataclass(frozen=True)
class Envelope(Training):
    """Descend the envelope of one's loss: solve for theta near w, move w towards it, again.

    theta stays with the client, which goes on from it the next time; w is sent back.
    """

    lam: NonNegative = 15.0
    inner_steps: Count = 5
    rate: Positive = 0.01
    silent: bool = False  # send nothing: for somebody who comes when the training is over

    def answer_form(self, known: Known) -> AnswerForm:
        """w, or nothing."""
        return {"value": known.layout.form("none" if self.silent else "all")}

    def __call__(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Reply:
        """On each mini-batch K steps on theta (Eq. 7), then one on w (Algorithm 1, line 8)."""
        near, w = replace(self.solver, prox=self.lam), models.clone()
        learning = w[: layout.trainable]
        net = layout.flat(own_row(client, models[:0], "all", layout))
        state = near.optimiser.init(net.grad)
        with net.drawing(rng):
            for batch in near.plan(client, layout, rng):
                for _ in range(self.inner_steps):
                    near.step(net, state, learning, (client.x[batch], client.y[batch]))
                theta = net.w[: layout.trainable]
                learning.sub_(learning - theta, alpha=self.rate * self.lam)
        w[layout.trainable :] = net.w[layout.trainable :]  # statistics are theta's
        return Reply(w[:0] if self.silent else w, keep={"private": net.w.clone()})


@dataclass(frozen=True)
class PFedMe(FedAvg):
    """Minimise the mean of F_i(w) = min over theta of f_i(theta) + (lam/2) |theta - w|^2."""

    solver: Solver = Solver(lr=0.1, steps=20, batch=20)  # its rate is that of the steps on theta
    lam: NonNegative = 15.0  # lambda, strength of the pull to the common model
    inner_steps: Count = 5  # K, steps on theta for each mini-batch
    rate: Positive = 0.01  # eta, of the step on w
    beta: Positive = 1.0  # of the server's step towards the average

    kind = "personal"
    refuses: ClassVar[Mapping[str, str]] = {
        "server": "its server takes a step of its own: pfedme.beta",
    }

    @property
    def local(self) -> Envelope:
        """Steps on theta, and on w towards it."""
        return Envelope(self.solver, self.lam, self.inner_steps, self.rate)

    @property
    def score(self) -> Score:
        """Each client tests its theta; the common model only serves to make them."""
        return Score(private="all")

    def round(self, state: State, fed: Federation) -> State:
        """w <- (1 - beta) w + beta times the plain average (Algorithm 1, line 11)."""
        state = self.place(state, fed)
        w = fed.ask(fed.sample(self.fraction), self.local, state)
        if not w:
            return state
        merged = self.server.merged(state, w)
        rows = merged.models if self.server.robust else w.values
        return merged.hold(move(uniform(len(rows)), rows, state.models[0], self.beta)[None])

    def place(self, state: State, fed: Federation) -> State:
        """A newcomer makes its theta near w, of which nobody hears."""
        return welcome(state, fed, replace(self.local, silent=True))
