"""A method of your own: cluster clients by the labels they hold, then FedAvg in each cluster.

python examples/own_method.py
PYTHONPATH=examples coterie run --method own_method:ByLabels --partition label-groups --rounds 5
"""

from __future__ import annotations

import torch

import coterie as ct


@ct.dataclass(frozen=True)
class ByLabels:
    """Clients whose class counts point the same way share a model."""

    solver: ct.Solver = ct.Solver()
    fraction: ct.Share = 1.0  # of clients drawn in a round
    threshold: ct.Positive = 0.3  # merge while the cosine distance is at most this

    @property
    def score(self) -> ct.Score:
        """Every client tests its cluster's model."""
        return ct.Score()

    def init(self, fed: ct.Federation) -> ct.State:
        """Nobody holds a model before everybody was asked."""
        return self.place(ct.State.nobody(fed.layout.initial, len(fed.clients)), fed)

    def round(self, state: ct.State, fed: ct.Federation) -> ct.State:
        """Draw, train, average inside each cluster."""
        state = self.place(state, fed)
        cohort = fed.sample(self.fraction, among=state.placed)
        return ct.merge(state, fed.ask(cohort, ct.Train(self.solver), state))

    def place(self, state: ct.State, fed: ct.Federation) -> ct.State:
        """Cluster the first time; later, a newcomer joins the nearest mean of counts."""
        if not len(state.unplaced):
            return state
        counts = fed.ask(state.unplaced, ct.Histogram(classes=fed.classes), state)
        if not counts:
            return state
        shares = torch.nn.functional.normalize(counts.values, dim=1)
        if "means" in state.memory:
            return state.reassign(counts.clients, (shares @ state.memory["means"].T).argmax(1))
        labels = ct.grouping.cut(ct.distance.cosine_distance(shares), self.threshold)
        k = int(labels.max()) + 1
        means = torch.stack([shares[labels == c].mean(0) for c in range(k)])
        return state.regroup(counts.clients, labels, fed.layout.initial).hold(means=means)


def main(rounds: int = 10) -> None:
    clients = ct.partition("digits", "label-groups:0-4/5-9", clients=10)
    solver = ct.Solver(lr=0.05, epochs=2)
    for method in (ct.FedAvg(solver), ByLabels(solver)):
        result = ct.fit(method, clients, "cnn-s", rounds=rounds)
        found = result.state.k
        print(f"{type(method).__name__:9} {result.accuracy.mean():.3f}  {found} models")


if __name__ == "__main__":
    main()
