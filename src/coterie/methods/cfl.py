"""CFL: when a cluster has settled but its members still pull apart, it is split in two.

Sattler, Müller, Samek: Clustered Federated Learning: Model-Agnostic Distributed Multitask
Optimization Under Privacy Constraints. IEEE Transactions on Neural Networks and Learning Systems,
2021. Also called FMTL and MTCFL in comparisons.
"""

from __future__ import annotations

from dataclasses import field, replace

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from coterie.core.bounds import Count, Part, Positive, Share, Whole, dataclass
from coterie.core.types import Federation, State
from coterie.tasks import SGD, Score, Solver, Train
from coterie.words.distance import cosine
from coterie.words.grouping import bipartition, closest, incongruence, separable
from coterie.words.server import ServerOptimiser


@dataclass(frozen=True)
class CFL:
    """FedAvg in one cluster, then in the two it was split into, and so on.

    Norms of updates depend on the network, the learning rate and the number of steps, and so do
    eps1 and eps2: those here are the authors', 0.4 and 0.6 are FedClust's. In the paper everybody
    takes part; with a `fraction`, those drawn split a cluster, and the others join a side as
    newcomers do.
    """

    solver: Solver = Solver(lr=0.1, optimiser=SGD(momentum=0.9), epochs=1, batch=128)
    fraction: Share = 1.0  # of clients drawn in a round; 1: everybody, as in the paper
    eps1: Positive = 0.4  # settled: the norm of the mean update is below this
    eps2: Positive = 1.6  # pulling apart: the largest norm of an update is above this
    gamma: Part = 0.0  # gamma_max: split only if it is below sqrt((1 - largest cross cosine)/2)
    min_round: Whole = 20  # no split before this many rounds
    min_size: Count = 3  # no split of a cluster with fewer clients than this
    server: ServerOptimiser = field(default=ServerOptimiser(), kw_only=True)  # of the average

    kind = "clustered"
    score = Score()  # every client tests its cluster's model

    def init(self, fed: Federation) -> State:
        """One cluster."""
        return State.shared(fed.layout.initial, len(fed.clients))

    def round(self, state: State, fed: Federation) -> State:
        """FedAvg inside each cluster; then each cluster that asks for it is split."""
        before = self.place(state, fed)
        cohort = fed.sample(self.fraction, among=before.placed)
        w = fed.ask(cohort, Train(self.solver), before)
        state = self.server.advance(before, self.server.merged(before, w), fed.layout)
        dw = (w.values - before.of(w.clients))[:, fed.layout.columns("params")]
        seen, sizes = [], w.counted(before.assign[w.clients])
        for c in before.assign[w.clients].unique().tolist():
            mine = before.assign[w.clients] == c
            found = incongruence(dw[mine], sizes[mine], self.eps1, self.eps2)
            seen.append((found.mean_norm, found.max_norm))
            if found.split and state.round >= self.min_round:
                state = self.split(state, c, before.models[c], w.clients[mine], dw[mine])
        if not seen:
            return state
        mean_norms, max_norms = torch.tensor(seen).T  # what eps1 and eps2 are compared with
        return state.hold(report_mean_norm=mean_norms.min(), report_max_norm=max_norms.max())

    def split(self, state: State, c: int, parent: Tensor, ids: Tensor, dw: Tensor) -> State:
        """Cluster c, or c and a new one that inherits its model; who gave no update waits."""
        if len(ids) < max(self.min_size, 2):
            return state
        labels, cross = bipartition(cosine(dw))
        if not separable(cross, self.gamma):
            return state
        k, leaving = state.k, ids[labels == 1]  # ids are clients, labels count within the cluster
        absent = (state.assign == c).index_fill(0, ids, False).nonzero().flatten()
        state = replace(state, models=torch.cat([state.models, state.models[c : c + 1]]))
        state = state.reassign(absent, torch.full_like(absent, -1))
        state = state.reassign(leaving, torch.full_like(leaving, k))
        sides = torch.stack([dw[labels == side].mean(0) for side in (0, 1)])
        return remember(state, splits=torch.tensor([c, k]), parents=parent, sides=sides)

    def place(self, state: State, fed: Federation) -> State:
        """Down the tree of splits: train from the parent's model, go where one's update points."""
        new = state.unplaced
        if not len(new):
            return state
        state = state.give_unplaced(0)
        m = state.memory
        for s, (c, k) in enumerate(m["splits"].tolist() if "splits" in m else ()):
            here = new[state.assign[new] == c]
            if not len(here):
                continue
            w = fed.ask(here, Train(self.solver), State.shared(m["parents"][s], len(fed.clients)))
            state = state.reassign(here, torch.full_like(here, -1))  # who does not answer waits
            if w:
                dw = (w.values - m["parents"][s])[:, fed.layout.columns("params")]
                side = closest(-cosine_similarity(dw[:, None], m["sides"][s][None], dim=2))
                state = state.reassign(w.clients, torch.where(side == 1, k, c))
        return state


def remember(state: State, **rows: Tensor) -> State:
    """The state with one more row in each of these memories."""
    return state.hold(
        **{
            name: torch.cat([state.memory[name], row[None]]) if name in state.memory else row[None]
            for name, row in rows.items()
        }
    )
