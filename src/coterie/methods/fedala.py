"""FedALA: each client takes of the global model, number by number, what helps on its own data.

Zhang, Hua, Wang, Song, Xue, Ma, Guan: FedALA: Adaptive Local Aggregation for Personalized Federated
Learning. AAAI 2023.
"""

from __future__ import annotations

import statistics

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from coterie.core.bounds import NonNegative, Share, dataclass
from coterie.core.types import Client, Federation, Layout, Reply, Sent, State
from coterie.methods.fedavg import FedAvg, welcome
from coterie.tasks import Score, Solver, SteppedTask, Stepwise, Train, Training, trained

# When a client learns its weights for the first time, it goes on until the losses of so many
# passes deviate by less than this, as the authors' code has it; and never for more passes.
PASSES, SETTLED, MOST = 10, 0.1, 100


@dataclass(frozen=True)
class TrainAggregated(Training, SteppedTask):
    """Mix the model received with one's own, train the mixture, keep it and send it."""

    adapted: str = "head"
    share: Share = 0.8
    rate: NonNegative = 1.0

    def stepwise(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Stepwise[Reply]:
        """A client that trains for the first time has nothing of its own to mix with."""
        start, keep = models, {}
        if "private" in client.memory:
            start, W = self.aggregate(client, models, layout, rng)
            keep = {"weights": W}
        w, _ = yield from trained(self.solver, client, start, rng)
        return Reply(w, keep={"private": w, **keep})

    def aggregate(
        self, client: Client, received: Tensor, layout: Layout, rng: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """own + (received - own) W where numbers are adapted, elsewhere what was received; and W.

        W <- clip(W - rate grad (received - own), 0, 1) on some of the client's samples: one pass,
        or the first time as many as it takes (Algorithm 1, lines 6-16).
        """
        at = torch.arange(layout.size)[layout.columns(self.adapted)]
        at = at[at < layout.trainable]
        own, new = client.memory["private"][at], received[at]
        W = client.memory.get("weights", torch.ones_like(new))
        mixed = received.clone()
        mixed[at] = torch.lerp(own, new, W)
        if not self.rate or not len(at):
            return mixed, W
        apart = torch.Generator().manual_seed(rng.initial_seed() ^ 1)  # training draws as FedAvg's
        some = torch.randperm(len(client), generator=apart)
        some = some[: max(1, round(self.share * len(client)))]
        net, losses = layout.flat(mixed, train=self.adapted), list[float]()
        with net.drawing(apart):
            for _ in range(1 if "weights" in client.memory else MOST):
                for i in some.split(self.solver.batch or len(some)):
                    net.gradient(client.x[i], client.y[i])
                    W = (W - self.rate * net.grad[at] * (new - own)).clamp(0, 1)
                    net.w[at] = torch.lerp(own, new, W)
                said = layout.predict(net.w, client.x[some])
                losses.append(float(cross_entropy(said, client.y[some])))
                if len(losses) >= PASSES and statistics.pstdev(losses[-PASSES:]) < SETTLED:
                    break
        return net.w.clone(), W


@dataclass(frozen=True)
class FedALA(FedAvg):
    """FedAvg whose clients start from a mixture of the global model and their own, learned anew."""

    solver: Solver = Solver(lr=0.005, epochs=1, batch=10)
    adapted: str = "head"  # the columns that are mixed: the p last layers; the others are received
    share: Share = 0.8  # s, of a client's samples on which it learns how to mix
    rate: NonNegative = 1.0  # eta, of the steps on the weights; 0: they stay 1

    kind = "personal"

    @property
    def local(self) -> TrainAggregated:
        """Aggregate, then train."""
        return TrainAggregated(self.solver, self.adapted, self.share, self.rate)

    @property
    def score(self) -> Score:
        """Each client tests the model that it trained last."""
        return Score(private="all")

    def place(self, state: State, fed: Federation) -> State:
        """A newcomer takes the global model and trains it for itself."""
        return welcome(state, fed, Train(self.solver, private="all"), start=state.models)
