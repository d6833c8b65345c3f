"""Per-FedAvg: a model from which one step on a client's own data leads to a good one.

Fallah, Mokhtari, Ozdaglar: Personalized Federated Learning with Theoretical Guarantees: A
Model-Agnostic Meta-Learning Approach. NeurIPS 2020.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from coterie.core.bounds import NonNegative, Positive, Share, dataclass
from coterie.core.types import Client, Layout, Reply, Sent, Task
from coterie.methods.fedavg import FedAvg
from coterie.tasks import SGD, Score, Solver, Train, Training


@dataclass(frozen=True)
class HessianFree(Training):
    """SGD on f(w - alpha grad f(w)), its Hessian-vector product a difference of two gradients.

    Each step sees three independent mini-batches: for the inner step, for the outer gradient, and
    for the difference.
    """

    alpha: Positive = 0.01
    delta: Positive = 1e-3

    def __call__(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Reply:
        """Train, and send everything back."""
        net = layout.flat(models)
        w, state = net.w[: layout.trainable], self.solver.optimiser.init(net.grad)
        anchor = models[: layout.trainable]

        def gradient(at: Tensor, batch: Tensor) -> Tensor:
            w.copy_(at)
            net.gradient(client.x[batch], client.y[batch])
            return net.grad.clone()

        plans = [self.solver.plan(client, layout, rng) for _ in range(3)]
        with net.drawing(rng):
            for inner, outer, third in zip(*plans, strict=True):
                here = w.clone()
                g = gradient(here - self.alpha * gradient(here, inner), outer)
                ahead = gradient(here + self.delta * g, third)
                behind = gradient(here - self.delta * g, third)
                w.copy_(here)
                net.grad.copy_(g - self.alpha * (ahead - behind) / (2 * self.delta))
                self.solver.apply(net, state, anchor)
        return Reply(net.w.clone())


@dataclass(frozen=True)
class PerFedAvg(FedAvg):
    """FedAvg with MAML's local objective: the loss after one gradient step of rate alpha."""

    solver: Solver = Solver(
        lr=0.001, optimiser=SGD(momentum=0.5), epochs=10, batch=10
    )  # lr: beta, the outer rate
    fraction: Share = 0.1  # of clients drawn in a round
    alpha: NonNegative = 0.01  # rate of the inner step, and of the step before the test
    order: Literal["first", "hessian-free"] = "first"  # first: leave the second derivatives out
    delta: Positive = 1e-3  # width of the difference that replaces them, if they are not left out

    kind = "personal"

    @property
    def local(self) -> Task:
        """First-order MAML, or the Hessian-free one; without an inner step, plain SGD."""
        if self.order == "first" or not self.alpha:
            return Train(replace(self.solver, meta=self.alpha))
        return HessianFree(self.solver, self.alpha, self.delta)

    @property
    def score(self) -> Score:
        """The model as it is, and what one step on all of a client's data makes of it."""
        return Score(adapt=Solver(lr=self.alpha, steps=1, batch=0) if self.alpha else None)
