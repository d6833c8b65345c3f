"""CFLGT: clustering by gradient trajectories, 2 C numbers from each client.

Liu, Wang, Yu, Kant: A Remedy for Heterogeneous Data: Clustered Federated Learning with Gradient
Trajectory.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from coterie.core.bounds import Damping, Part, Share, Whole, dataclass
from coterie.core.rng import stream
from coterie.core.types import Federation, Replies, State, Task
from coterie.methods.fedavg import FedAvg
from coterie.methods.group_once import LANDMARKS, before_groups, kept, landmarks, round_in_groups
from coterie.tasks import SGD, Solver, Train, Trajectory
from coterie.words.distance import cross_trajectories, trajectories
from coterie.words.grouping import Exemplars, closest, exemplars, mean_hopkins, silhouette


@dataclass(frozen=True)
class CFLGT(FedAvg):
    """Pre-train one model, ask for the forces on its classifier, cluster, go on apart."""

    solver: Solver = Solver(lr=0.001, optimiser=SGD(momentum=0.9), epochs=5, batch=32)
    fraction: Share = 0.2  # of clients drawn in a round once there are clusters
    pretrain: Whole = 25  # K, rounds of FedAvg with everybody before the clustering
    preference: Literal["median", "silhouette"] = "median"  # of affinity propagation
    damping: Damping = 0.7  # of affinity propagation
    hopkins: Part = 0.75  # less clustering tendency than this: one cluster
    silhouette: Part = 0.25  # clusters less distinct than this: one cluster
    normalise: bool = True  # forces per sample; False: summed as printed, which sorts by size
    landmarks: Whole = LANDMARKS  # clients grouped at once, others join as newcomers; 0: all

    kind = "clustered"

    @property
    def signature(self) -> Trajectory:
        """What a client is placed by."""
        return Trajectory(self.normalise, self.solver.privacy)

    def asks(self, rounds: int, sizes: Tensor) -> list[tuple[Task, int]]:
        """What a client is asked at most, and how often: for its privacy account."""
        return [(self.signature, 1), (self.local, rounds)]

    def round(self, state: State, fed: Federation) -> State:
        """FedAvg with everybody, K times; then cluster once; then FedAvg inside each cluster."""
        if state.round < self.pretrain:
            state = self.place(state, fed)
            w = fed.ask(fed.clients, Train(self.solver), state)
            return self.server.advance(state, self.server.merged(state, w), fed.layout)
        if "exemplars" not in state.memory:
            state = self.cluster(state, fed)
        state = self.place(state, fed)
        return round_in_groups(state, fed, self.solver, self.fraction, self.server)

    def cluster(self, state: State, fed: Federation) -> State:
        """Trajectories up, distances, affinity propagation; every cluster starts from h_g."""
        z = fed.ask(fed.clients, self.signature, self.place(state, fed))
        if not z:
            return state
        some, others = landmarks(z, self.landmarks, fed)
        D = trajectories(some.values)  # (m, m)
        H = mean_hopkins(some.values.flatten(1), stream(fed.seed, "hopkins", fed.round))
        found = self.groups(D, H)
        state = state.regroup(some.clients, found.labels, state.models[0]).hold(
            pretrained=state.models[:1],
            exemplars=some.values[found.exemplars],
            trajectories=z.spread(len(fed.clients), fill=float("nan")),
            report_hopkins=torch.tensor(H),
            report_converged=torch.tensor(float(found.converged)),
            **kept(D, some.clients, len(fed.clients)),
        )
        return self.join(state, others)

    def groups(self, D: Tensor, H: float) -> Exemplars:
        """Affinity propagation on -D, unless there is nothing to tell apart."""
        one = Exemplars(torch.zeros(len(D), dtype=torch.long), D.sum(0).argmin()[None], True)
        if self.hopkins > H:
            return one
        found = exemplars(D, self.preference, self.damping)
        return one if silhouette(D, found.labels) < self.silhouette else found

    def place(self, state: State, fed: Federation) -> State:
        """Before the clustering, the one model; after it, the nearest exemplar's cluster."""
        if "exemplars" not in state.memory:
            return super().place(state, fed)
        if not len(state.unplaced):
            return state
        z = fed.ask(state.unplaced, self.signature, before_groups(state))
        return self.join(state, z) if z else state

    def join(self, state: State, z: Replies) -> State:
        """Each of these goes to the cluster whose exemplar's trajectory is nearest."""
        D = cross_trajectories(z.values, state.memory["exemplars"])
        return state.reassign(z.clients, closest(D))
