"""FedPFA: group clients by which channels of the network stay silent on their data.

Liu, Guo, Chen: PFA: Privacy-preserving Federated Adaptation for Effective Model Personalization.
The Web Conference (WWW) 2021.
"""

from __future__ import annotations

from typing import Literal

from coterie.core.bounds import Positive, Whole, dataclass
from coterie.core.types import Federation, Replies, State
from coterie.methods.fedavg import FedAvg
from coterie.methods.group_once import LANDMARKS, before_groups, kept, landmarks, round_in_groups
from coterie.tasks import Sparsity
from coterie.words.distance import cross_l2, l2
from coterie.words.grouping import agglomerate, nearest_group


@dataclass(frozen=True)
class FedPFA(FedAvg):
    """FedAvg first; then each client sends the mean sparsity of each channel; groups go on apart.

    Cut into a number of `clusters`, or with `clusters = 0` at a `threshold`, or with neither where
    the tree's heights jump most.
    """

    pretrain: Whole = 10  # rounds of FedAvg before the grouping
    layer: str = "head"  # whose channels: head for what enters the head, or a layer by name
    clusters: Whole = 3  # if not 0, cut the tree into this many groups
    threshold: Positive | None = None  # merge while the linkage distance is at most this
    linkage: Literal["average", "single", "complete"] = "average"  # between groups
    landmarks: Whole = LANDMARKS  # clients grouped at once, others join as newcomers; 0: all

    kind = "clustered"

    def round(self, state: State, fed: Federation) -> State:
        """FedAvg; once it has settled, group; then FedAvg inside each group."""
        if state.round >= self.pretrain and "members" not in state.memory:
            state = self.group(state, fed)
        state = self.place(state, fed)
        return round_in_groups(state, fed, self.solver, self.fraction, self.server)

    def group(self, state: State, fed: Federation) -> State:
        """Sparsity vectors up, distances, groups; each starts from the pre-trained model."""
        z = fed.ask(fed.clients, Sparsity(self.layer), self.place(state, fed))  # (m, channels)
        if not z:
            return state
        some, others = landmarks(z, self.landmarks, fed)
        D = l2(some.values)
        labels = agglomerate(D, self.threshold, self.clusters, self.linkage)
        state = state.regroup(some.clients, labels, state.models[0]).hold(
            pretrained=state.models[:1],
            members=some.values,
            member_labels=labels,
            **kept(D, some.clients, len(fed.clients)),
        )
        return self.join(state, others)

    def place(self, state: State, fed: Federation) -> State:
        """Before the grouping, the one model; after it, the group of the most similar sparsity."""
        if "members" not in state.memory:
            return super().place(state, fed)
        if not len(state.unplaced):
            return state
        z = fed.ask(state.unplaced, Sparsity(self.layer), before_groups(state))
        return self.join(state, z) if z else state

    def join(self, state: State, z: Replies) -> State:
        """Each of these goes to the group of the most similar sparsity."""
        D = cross_l2(z.values, state.memory["members"])
        return state.reassign(z.clients, nearest_group(D, state.memory["member_labels"]))
