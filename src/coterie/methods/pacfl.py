"""PACFL: cluster clients by the angles between the subspaces of their data, before any training.

Vahidian, Morafah, Wang, Kungurtsev, Chen, Shah, Lin: Efficient Distribution Similarity
Identification in Clustered Federated Learning via Principal Angles Between Client Data Subspaces.
AAAI 2023.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from torch import Tensor

from coterie.core.bounds import Count, Positive, Share, Whole, dataclass
from coterie.core.types import Federation, Replies, State
from coterie.methods.group_once import LANDMARKS, kept, landmarks, round_in_groups
from coterie.tasks import SGD, Basis, Score, Solver
from coterie.words.distance import cross_subspaces, subspaces
from coterie.words.grouping import agglomerate, nearest_group, neighbour_cut
from coterie.words.server import ServerOptimiser


@dataclass(frozen=True)
class PACFL:
    """Each client sends p singular vectors of its data; those at small angles share a model.

    Give `threshold` (beta, in degrees) or a number of `clusters`. With neither, clients merge whose
    smallest angles are about those between neighbours, or with `trace` the tree is cut where its
    heights jump most; either may leave one cluster.
    """

    solver: Solver = Solver(lr=0.01, optimiser=SGD(momentum=0.5), epochs=10, batch=10)
    fraction: Share = 0.1  # of clients drawn in a round
    p: Count = 3  # leading left singular vectors that are sent
    angle: Literal["smallest", "trace"] = "smallest"  # principal angle, or sum over matched vectors
    threshold: Positive | None = None  # beta: merge while the linkage angle is at most this
    clusters: Whole = 0  # if given, cut the tree into this many clusters
    linkage: Literal["average", "single", "complete"] = "average"  # between groups
    landmarks: Whole = LANDMARKS  # clients grouped at once, others join as newcomers; 0: all
    server: ServerOptimiser = field(default=ServerOptimiser(), kw_only=True)  # of the average

    kind = "clustered"
    score = Score()  # every client tests its cluster's model

    def init(self, fed: Federation) -> State:
        """Bases up, angles, clusters; no model has travelled yet."""
        return self.place(State.nobody(fed.layout.initial, len(fed.clients)), fed)

    def round(self, state: State, fed: Federation) -> State:
        """FedAvg inside each cluster."""
        state = self.place(state, fed)
        return round_in_groups(state, fed, self.solver, self.fraction, self.server)

    def place(self, state: State, fed: Federation) -> State:
        """Send the basis; join the cluster at the smallest mean angle."""
        if not len(state.unplaced):
            return state
        U = fed.ask(state.unplaced, Basis(self.p), state)  # (m, features, p)
        if not U:
            return state
        if "bases" not in state.memory:
            return self.cluster(state, U, fed)
        return self.join(state, U)

    def join(self, state: State, U: Replies) -> State:
        """Each of these goes to the cluster at the smallest mean angle."""
        A = cross_subspaces(U.values, state.memory["bases"], self.angle)
        return state.reassign(U.clients, nearest_group(A, state.memory["base_labels"]))

    def cluster(self, state: State, U: Replies, fed: Federation) -> State:
        """Proximity matrix and its tree; every cluster starts from theta^0."""
        some, others = landmarks(U, self.landmarks, fed)
        A = subspaces(some.values, self.angle)  # (m, m) degrees
        labels = self.groups(A)
        state = state.regroup(some.clients, labels, fed.layout.initial).hold(
            bases=some.values,
            base_labels=labels,
            **kept(A, some.clients, len(fed.clients)),
        )
        return self.join(state, others)

    def groups(self, A: Tensor) -> Tensor:
        """(m,) labels: by what the user knows, or by what the angles themselves suggest."""
        told = self.clusters or self.threshold is not None
        if told or self.angle == "trace":
            return agglomerate(A, self.threshold, self.clusters, self.linkage)
        return neighbour_cut(A, self.linkage).labels
