"""FedSEM: k-means on the clients' models, a step of it in every round.

Long, Xie, Shen, Zhou, Wang, Jiang: Multi-center federated learning: clients clustering for better
personalization. World Wide Web, 2023 (arXiv 2005.01026). Also called FeSEM.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal

import torch
from torch import Tensor

from coterie.core.bounds import Count, Share, Whole, dataclass
from coterie.core.rng import stream
from coterie.core.types import Federation, Replies, State
from coterie.methods.group_once import LANDMARKS, landmarks, round_in_groups
from coterie.tasks import SGD, Score, Solver, Train
from coterie.words.grouping import kmeans, nearest
from coterie.words.mixing import mix, provisional, within
from coterie.words.server import ServerOptimiser


@dataclass(frozen=True)
class FedSEM:
    """C centres; each round a client joins the centre nearest to the model it trained (L2).

    The paper starts from random networks, to which trained models are often all nearest to the same
    one; taking the first centres from the first round by k-means (k-means++ starts) is ours.
    """

    solver: Solver = Solver(lr=0.01, optimiser=SGD(momentum=0.9), steps=20, batch=32)
    fraction: Share = 1.0  # of clients drawn in a round
    clusters: Count = 3  # C
    start: Literal["kmeans++", "random"] = "kmeans++"  # random: networks drawn anew, as printed
    landmarks: Whole = LANDMARKS  # clients from whom the first centres are taken; 0: all
    fix_after: Whole = 0  # rounds after which nobody changes its centre; 0: never
    server: ServerOptimiser = field(default=ServerOptimiser(), kw_only=True)  # of the average

    kind = "clustered"
    score = Score()  # every client tests its centre

    def init(self, fed: Federation) -> State:
        """Every centre is w^0 until the first round has told clients apart."""
        models = fed.layout.initial.repeat(self.clusters, 1)
        return State.nobody(models, len(fed.clients))

    def round(self, state: State, fed: Federation) -> State:
        """Train from the own centre; join the nearest one; centres become their members' mean."""
        if self.fix_after and state.round >= self.fix_after:
            state = self.place(state, fed)
            return round_in_groups(state, fed, self.solver, self.fraction, self.server)
        w = fed.ask(fed.sample(self.fraction), Train(self.solver), self.lodged(state, fed))
        if not w:
            return state
        first = "seeded" not in state.memory
        if first:
            state = state.hold(self.centres(state, w, fed), seeded=torch.ones(1))
        params = fed.layout.columns("params")
        labels = nearest(w.values[:, params], state.models[:, params])
        merged = self.server.merged(state.reassign(w.clients, labels), w)
        return merged if first else self.server.advance(state, merged, fed.layout)

    def centres(self, state: State, w: Replies, fed: Federation) -> Tensor:
        """(C, P) the first centres: means of the first round's models, or networks drawn anew."""
        k = self.clusters
        if self.start == "random":
            return torch.stack([fed.layout.fresh(stream(fed.seed, "centre", c)) for c in range(k)])
        params = fed.layout.columns("params")
        some, _ = landmarks(w, self.landmarks, fed)
        labels = kmeans(some.values[:, params], k, stream(fed.seed, "seeding", fed.round))
        return mix(within(labels, some.counted(labels), k), some.values, keep=state.models)

    def lodged(self, state: State, fed: Federation) -> State:
        """Who has no centre starts from w^0 at first, and later from the mean of the centres."""
        if "seeded" in state.memory:
            return provisional(state, fed)
        return State.shared(fed.layout.initial, len(fed.clients))

    def place(self, state: State, fed: Federation) -> State:
        """A newcomer trains from the mean of the centres and joins the nearest."""
        if not len(state.unplaced) or "seeded" not in state.memory:
            return state
        w = fed.ask(state.unplaced, Train(self.solver), provisional(state, fed))
        if not w:
            return state
        params = fed.layout.columns("params")
        return state.reassign(w.clients, nearest(w.values[:, params], state.models[:, params]))
