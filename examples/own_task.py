"""Tasks of your own: one that engines stack, and one that trains in a loop of its own.

python examples/own_task.py
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import coterie as ct


@ct.dataclass(frozen=True)
class TrainAndGain(ct.SteppedTask):
    """Train, and say by how much the loss on one's own data fell."""

    solver: ct.Solver = ct.Solver()

    @property
    def trains(self) -> ct.Solver:
        """The recipe, from which an engine sees how much work this is."""
        return self.solver

    def answer_form(self, known: ct.Known) -> ct.AnswerForm:
        """A whole model, and one number, which no honest training makes very large."""
        gain = ct.Form("float32", (), low=-1e6, high=1e6)
        return {"value": known.layout.form("all"), "extra.gain": gain}

    def stepwise(
        self,
        client: ct.Client,
        models: Tensor,  # (P,) the model the client holds
        sent: Mapping[str, Tensor],
        layout: ct.Layout,
        rng: torch.Generator,
    ) -> ct.Stepwise[ct.Reply]:
        """Read, train, read."""
        before = yield ct.Forward(models, client.x)  # logits (N, classes)
        w, _ = yield ct.Descent(self.solver, client, models, rng)
        after = yield ct.Forward(w, client.x)
        gain = cross_entropy(before, client.y) - cross_entropy(after, client.y)
        return ct.Reply(w, {"gain": gain})


@ct.dataclass(frozen=True)
class GainAvg(ct.FedAvg):
    """FedAvg in which a client counts by how much it learned, not by how much data it has."""

    def round(self, state: ct.State, fed: ct.Federation) -> ct.State:
        """Draw, train, average by gain."""
        state = self.place(state, fed)
        w = fed.ask(fed.sample(self.fraction), TrainAndGain(self.solver), state)
        if not w:
            return state
        weights = ct.mixing.average(w.extra["gain"].clamp(min=1e-6))  # (1, m)
        return state.hold(ct.mix(weights, w.values))


@ct.dataclass(frozen=True)
class TrainByHand(ct.Task):
    """Train with an optimiser of PyTorch's, in a loop as anybody would write it."""

    lr: ct.Positive = 0.001
    epochs: ct.Count = 2
    batch: ct.Count = 32

    def __call__(
        self,
        client: ct.Client,
        models: Tensor,
        sent: Mapping[str, Tensor],
        layout: ct.Layout,
        rng: torch.Generator,
    ) -> ct.Reply:
        """A row becomes a module, the module is trained, and it becomes a row again."""
        net = layout.module(models).train()
        optimiser = torch.optim.Adam(net.parameters(), lr=self.lr)
        for _ in range(self.epochs):
            for i in torch.randperm(len(client), generator=rng).split(self.batch):
                optimiser.zero_grad()
                loss = cross_entropy(net(client.x[i]), client.y[i])
                loss.backward()
                optimiser.step()
        return ct.Reply(layout.row(net))


@ct.dataclass(frozen=True)
class FedAdam(ct.FedAvg):
    """FedAvg whose clients train by hand."""

    @property
    def local(self) -> ct.Task:
        """What a client does in a round."""
        return TrainByHand()


def main(rounds: int = 10) -> None:
    clients = ct.partition("digits", "dirichlet", clients=10)
    solver = ct.Solver(lr=0.05, epochs=2)
    for method in (ct.FedAvg(solver), GainAvg(solver), FedAdam()):
        result = ct.fit(method, clients, "cnn-s", rounds=rounds)
        print(f"{type(method).__name__:8} {result.accuracy.mean():.3f}")


if __name__ == "__main__":
    main()
