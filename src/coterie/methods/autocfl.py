"""AutoCFL: even out local training, then let the clients vote on who belongs together.

Gong, Xing, Liu, Xi, Chen: Adaptive Client Clustering for Efficient Federated Learning over Non-IID
and Imbalanced Data. IEEE Transactions on Big Data, 2024.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal

import torch
from torch import Tensor

from coterie.core.bounds import Count, Positive, Whole, dataclass
from coterie.core.rng import stream
from coterie.core.types import Federation, Replies, State
from coterie.methods.group_once import LANDMARKS, before_groups, kept, landmarks
from coterie.tasks import Score, Solver, Train
from coterie.words.distance import cosine_distance, cross_l2, scaled_l2
from coterie.words.grouping import auto_cut, canonical, closest, cut_k, dbscan, guard, kmeans
from coterie.words.mixing import within
from coterie.words.server import ServerOptimiser
from coterie.words.voting import (
    adjust_epochs,
    cumulative,
    should_stop,
    variance,
    vote,
    whole_epochs,
)

Adjust = Literal["all", "smaller", "none"]
Clustering = Literal["vote", "auto_cosine", "kmeans", "hac", "dbscan"]


@dataclass(frozen=True)
class AutoCFL:
    """Phase A: FedAvg with local epochs adjusted until losses are comparable; B: vote; C: FedAvg
    inside each cluster. No number of clusters is given; everybody takes part in every round.
    """

    solver: Solver = Solver(lr=0.01, epochs=5, batch=128)
    alpha: Positive = 0.5  # growth factor of Eq. 8
    adjust: Adjust = "all"  # whose epochs grow; all: as printed
    latest: Count = 10  # the round in which phase A ends at the latest
    earliest: Count = 1  # and at the earliest; as late as latest: it is held for so many rounds
    weighted: bool = True  # votes by sample share (Eq. 12), or one each
    chain: bool = True  # a cluster is all who are linked through representatives
    literal: bool = False  # let a client's distance to itself take part in the gaps
    guard: Literal["update_cosine", "eq6", "none"] = "update_cosine"  # the one-cluster guard
    clustering: Clustering = "vote"  # auto_cosine: ours; the others: the paper's Table 4
    told: Count = 4  # how many clusters k-means and HAC are told; the others find them
    keep_epochs: bool = False  # train on with the adjusted epochs in phase C
    landmarks: Whole = LANDMARKS  # clients grouped at once, others join as newcomers; 0: all
    server: ServerOptimiser = field(default=ServerOptimiser(), kw_only=True)  # of the average

    kind = "clustered"
    score = Score()  # every client tests its cluster's model

    def init(self, fed: Federation) -> State:
        """One model, and E^0 epochs for everybody."""
        return unhurried(State.shared(fed.layout.initial, len(fed.clients)), self.solver)

    def round(self, state: State, fed: Federation) -> State:
        """Phase A until it ends, which clusters (B); then C."""
        state = unhurried(self.place(state, fed), self.solver)
        if "members" not in state.memory:
            return self.adjusted(state, fed)
        E = whole_epochs(state.memory["epochs"])[state.placed] if self.keep_epochs else None
        send = {} if E is None else {"epochs": E}
        w = fed.ask(state.placed, Train(self.solver), state, **send)
        return self.server.advance(state, self.server.merged(state, w), fed.layout)

    def adjusted(self, state: State, fed: Federation) -> State:
        """A round of phase A: train E_m epochs, average, and see whose losses lag behind."""
        w, losses = paced(state, fed, self.solver)
        if not w:
            return state
        V = torch.tensor([variance(row) for row in cumulative(losses)])  # (t,), of Eq. 7
        state = state.hold(
            report_loss_variance=V[-1],
            report_epochs_mean=state.memory["epochs"].mean(),
            report_epochs_most=state.memory["epochs"].max(),
            report_adjusted_rounds=torch.tensor(float(len(V))),
        )
        if len(V) >= self.earliest and should_stop(V, self.latest):
            return self.cluster(state, w, fed)
        E = next_epochs(state, losses, fed.sizes, self.alpha, self.adjust)
        merged = self.server.advance(state, self.server.merged(state, w), fed.layout)
        return merged.hold(epochs=E, losses=losses)

    def cluster(self, state: State, w: Replies, fed: Federation) -> State:
        """Phase B, on the weights of the last layer; a cluster starts from its members' average."""
        last = fed.layout.columns("head.weight")
        some, others = landmarks(w, self.landmarks, fed)
        members = some.values[:, last]  # w'_m
        M = scaled_l2(members)  # Eq. 6
        angles = cosine_distance(members - state.models[0, last])
        labels = self.groups(M, angles, some, fed)
        seen = guard(M if self.guard == "eq6" else angles, labels)
        if self.guard != "none" and self.clustering == "vote":
            labels = seen.labels
        grouped = state.regroup(some.clients, labels, state.models[0]).hold(
            members=members,
            member_labels=labels,
            pretrained=state.models[:1],
            report_guard_silhouette=torch.tensor(seen.silhouette),
            report_guard_kept=torch.tensor(float(seen.kept)),
            **kept(M, some.clients, len(fed.clients)),
        )
        return self.server.merged(self.join(grouped, others, fed), w)

    def groups(self, M: Tensor, angles: Tensor, some: Replies, fed: Federation) -> Tensor:
        """(m,) labels by the vote, or by another clustering of the same weights."""
        if self.clustering == "auto_cosine":
            return auto_cut(angles).labels
        if self.clustering == "hac":
            return cut_k(M, self.told)
        if self.clustering == "dbscan":
            return dbscan(M)
        if self.clustering == "kmeans":
            rows = some.values[:, fed.layout.columns("head.weight")]
            return canonical(kmeans(rows, self.told, stream(fed.seed, "kmeans", fed.round)))
        return vote(M, some.counted(), self.weighted, self.chain, self.literal).labels

    def place(self, state: State, fed: Federation) -> State:
        """Before the clustering, the one model; after it, the cluster of least mean Eq. 6."""
        if "members" not in state.memory:
            return state.give_unplaced(0)
        if not len(state.unplaced):
            return state
        w = fed.ask(state.unplaced, Train(self.solver), before_groups(state))
        return self.join(state, w, fed) if w else state

    def join(self, state: State, w: Replies, fed: Federation) -> State:
        """Each of these goes to the cluster of least mean Eq. 6 to its members."""
        D = cross_l2(w.values[:, fed.layout.columns("head.weight")], state.memory["members"])
        labels = state.memory["member_labels"]
        mean = within(labels, torch.ones(len(labels)), state.k)  # (k, members)
        return state.reassign(w.clients, closest(D.double() @ mean.T))


def unhurried(state: State, solver: Solver) -> State:
    """E^0 epochs for everybody, and no losses yet; newcomers included, whoever was here before."""
    n = len(state.assign)
    E = state.memory.get("epochs", torch.zeros(0))
    losses = state.memory.get("losses", torch.zeros(0, n))
    if len(E) == n:
        return state
    mean = losses.mean(1, keepdim=True).expand(-1, n - losses.shape[1])
    return state.hold(
        epochs=torch.cat([E, torch.full((n - len(E),), float(solver.epochs))]),
        losses=torch.cat([losses, mean], 1),
    )


def paced(state: State, fed: Federation, solver: Solver) -> tuple[Replies, Tensor]:
    """What everybody trained in its own number of epochs, and all losses so far, (t, n)."""
    E = whole_epochs(state.memory["epochs"])
    w = fed.ask(fed.clients, Train(solver, report=("loss",)), state, epochs=E)
    losses = state.memory["losses"]
    return w, torch.cat([losses, filled(w, losses)[None]]) if w else losses


def next_epochs(
    state: State, losses: Tensor, sizes: Tensor, alpha: float, adjust: Adjust
) -> Tensor:
    """(n,) how long everybody trains in the next round (Eq. 8, 9)."""
    E = state.memory["epochs"]
    if adjust == "none":
        return E
    return adjust_epochs(E, cumulative(losses)[-1], losses[-1], sizes, alpha, adjust == "smaller")


def filled(w: Replies, losses: Tensor) -> Tensor:
    """(n,) this round's losses; who did not answer keeps its last one, or the mean at first."""
    n = losses.shape[1]
    last = losses[-1] if len(losses) else w.extra["loss"].mean().expand(n)
    return last.index_copy(0, w.clients, w.extra["loss"])
