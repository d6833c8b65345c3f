"""APFL: each client mixes the global model with one of its own, and learns how much of each.

Deng, Kamani, Mahdavi: Adaptive Personalized Federated Learning. 2020.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from coterie.core.bounds import Part, dataclass
from coterie.core.types import AnswerForm, Client, Federation, Known, Layout, Reply, Sent, State
from coterie.methods.fedavg import FedAvg, welcome
from coterie.tasks import Score, Training


@dataclass(frozen=True)
class TrainMixed(Training):
    """Train the model received, w, and send it; train one's own v where the two are mixed.

    v, alpha and the mixture alpha v + (1 - alpha) w stay with the client. Both see the same
    mini-batches, those that FedAvg and Local would see.
    """

    alpha: Part = 0.5
    adaptive: bool = True
    silent: bool = False  # send nothing: for somebody who comes when the training is over

    def answer_form(self, known: Known) -> AnswerForm:
        """w, or nothing."""
        return {"value": known.layout.form("none" if self.silent else "all")}

    def __call__(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Reply:
        """Steps on w and on v; on the first mini-batch also one on alpha."""
        learning = slice(0, layout.trainable)
        w, v = models.clone(), client.memory.get("v", layout.initial).clone()
        alpha = float(client.memory.get("alpha", self.alpha))
        net = layout.flat(w)
        of_w, of_v = (self.solver.optimiser.init(net.grad) for _ in range(2))
        anchors = w[learning].clone(), v[learning].clone()
        with net.drawing(rng):
            for first, batch in enumerate(self.solver.plan(client, layout, rng)):
                x, y = client.x[batch], client.y[batch]
                net.w.copy_(alpha * v + (1 - alpha) * w)
                net.gradient(x, y)  # where both are mixed
                g, statistics = net.grad.clone(), net.w[layout.trainable :].clone()
                if self.adaptive and first == 0:
                    slope = float((v - w)[learning].double() @ g.double())
                    alpha = min(1.0, max(0.0, alpha - self.solver.lr * slope))
                net.w.copy_(v)
                net.grad.copy_(alpha * g)
                self.solver.apply(net, of_v, anchors[1])
                v.copy_(net.w)
                v[layout.trainable :] = statistics
                net.w.copy_(w)
                net.gradient(x, y)
                self.solver.apply(net, of_w, anchors[0])
                w.copy_(net.w)
        mixed = alpha * v + (1 - alpha) * w
        keep = {"v": v, "alpha": torch.tensor(alpha, dtype=torch.float64), "private": mixed}
        return Reply(w[:0] if self.silent else w, keep=keep)


@dataclass(frozen=True)
class APFL(FedAvg):
    """FedAvg for w; each client also descends f_i(alpha v + (1 - alpha) w) in v and alpha."""

    alpha: Part = 0.5  # share of the own model in the mixture, at first
    adaptive: bool = True  # a step on alpha in every round; False: it stays as it is

    kind = "personal"

    @property
    def local(self) -> TrainMixed:
        """Steps on w, on v, and one on alpha."""
        return TrainMixed(self.solver, self.alpha, self.adaptive)

    @property
    def score(self) -> Score:
        """Each client tests its mixture as it was after it trained last."""
        return Score(private="all")

    def place(self, state: State, fed: Federation) -> State:
        """A newcomer takes w, trains as in a round, and keeps all of it to itself."""
        return welcome(state, fed, replace(self.local, silent=True))
