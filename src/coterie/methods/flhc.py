"""FL+HC: a few rounds of FedAvg, then hierarchical clustering of everybody's model, once.

Briggs, Fan, Andras: Federated learning with hierarchical clustering of local updates to improve
training on non-IID data. IJCNN 2020.
"""

from __future__ import annotations

from typing import Literal

import torch

from coterie.core.bounds import Positive, Share, Whole, dataclass
from coterie.core.types import Federation, Replies, State
from coterie.methods.autocfl import next_epochs, paced, unhurried
from coterie.methods.fedavg import FedAvg
from coterie.methods.group_once import LANDMARKS, before_groups, kept, landmarks, round_in_groups
from coterie.tasks import Solver, Train
from coterie.words.distance import l2
from coterie.words.grouping import agglomerate, nearest
from coterie.words.mixing import mix, within
from coterie.words.voting import whole_epochs


@dataclass(frozen=True)
class FLHC(FedAvg):
    """FedAvg; one training by everybody, whose models are clustered; FedAvg inside each cluster.

    Give a `threshold` or a number of `clusters`; with neither, the tree is cut where its heights
    jump most, which may leave one cluster. `adjust` evens out local epochs before the clustering as
    AutoCFL does, for the distances grow with the amount of training; everybody then takes part.
    """

    solver: Solver = Solver(lr=0.01, epochs=5, batch=128)
    fraction: Share = 1.0  # of clients drawn in a round other than the clustering one
    rounds_before: Whole = 4  # n, rounds of FedAvg before the one that clusters: the fifth
    threshold: Positive | None = None  # T: merge while the linkage distance is at most this
    clusters: Whole = 0  # if given, cut the tree into this many clusters
    linkage: Literal["average", "single", "complete"] = "average"  # between groups
    adjust: Literal["none", "all", "smaller"] = "none"  # AutoCFL's epochs before the clustering
    alpha: Positive = 0.5  # growth factor of the adjusted epochs
    landmarks: Whole = LANDMARKS  # clients grouped at once, others join as newcomers; 0: all

    kind = "clustered"

    def round(self, state: State, fed: Federation) -> State:
        """n rounds of FedAvg, one that clusters, then FedAvg inside each cluster."""
        state = self.place(state, fed)
        if self.adjust != "none" and "centres" not in state.memory:
            return self.adjusted(unhurried(state, self.solver), fed)
        if "centres" not in state.memory and state.round >= self.rounds_before:
            return self.cluster(state, fed)
        return round_in_groups(state, fed, self.solver, self.fraction, self.server)

    def adjusted(self, state: State, fed: Federation) -> State:
        """Everybody trains as long as its losses ask for; the last such round clusters."""
        if state.round >= self.rounds_before:
            return self.cluster(state, fed, epochs=whole_epochs(state.memory["epochs"]))
        w, losses = paced(state, fed, self.solver)
        if not w:
            return state
        E = next_epochs(state, losses, fed.sizes, self.alpha, self.adjust)
        merged = self.server.advance(state, self.server.merged(state, w), fed.layout)
        return merged.hold(epochs=E, losses=losses)

    def cluster(self, state: State, fed: Federation, **epochs: torch.Tensor) -> State:
        """Everybody trains from w; clusters start from their members' average."""
        w = fed.ask(fed.clients, Train(self.solver), state, **epochs)
        if not w:
            return state
        some, others = landmarks(w, self.landmarks, fed)
        D = l2(some.values[:, fed.layout.columns("params")])  # (m, m)
        labels = agglomerate(D, self.threshold, self.clusters, self.linkage)
        centres = mix(within(labels, some.counted(labels), int(labels.max()) + 1), some.values)
        grouped = state.regroup(some.clients, labels, centres.clone()).hold(
            pretrained=state.models[:1],
            centres=centres,
            **kept(D, some.clients, len(fed.clients)),
        )
        return self.server.merged(self.join(grouped, others, fed), w)

    def place(self, state: State, fed: Federation) -> State:
        """Before the clustering, the one model; then train from w and join the nearest cluster."""
        if "centres" not in state.memory:
            return super().place(state, fed)
        if not len(state.unplaced):
            return state
        w = fed.ask(state.unplaced, Train(self.solver), before_groups(state))
        return self.join(state, w, fed) if w else state

    def join(self, state: State, w: Replies, fed: Federation) -> State:
        """Each of these goes to the cluster whose first model is nearest."""
        params = fed.layout.columns("params")
        labels = nearest(w.values[:, params], state.memory["centres"][:, params])
        return state.reassign(w.clients, labels)
