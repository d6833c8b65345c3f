"""FedDSMIC: cluster by what models say of samples the server holds; meta-learn each centre.

Li, Chen, Wang, Ding, Li: Multi-initial-Center Federated Learning with Data Distribution
Similarity-Aware Constraint. ICA3PP 2022.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Literal

import torch
from torch import Tensor

from coterie.core.bounds import Count, Positive, Share, Whole, dataclass
from coterie.core.errors import ConfigError
from coterie.core.rng import stream
from coterie.core.types import Federation, State
from coterie.methods.group_once import LANDMARKS, landmarks
from coterie.tasks import SGD, Score, Solver, Train
from coterie.words.distance import kl_logits
from coterie.words.grouping import closest, farthest_first, kmeanspp
from coterie.words.mixing import provisional
from coterie.words.server import ServerOptimiser


@dataclass(frozen=True)
class FedDS:
    """C centres; each round a client joins the centre whose predictions are nearest to its own.

    The server needs real samples (`[data] public`), taken out of the data before it is divided.
    """

    solver: Solver = Solver(lr=0.01, optimiser=SGD(momentum=0.9), steps=20, batch=32)
    fraction: Share = 1.0  # of clients drawn in a round
    clusters: Count = 3  # C
    seeding: Literal["farthest", "kmeans++", "random"] = "farthest"  # random: as printed
    landmarks: Whole = LANDMARKS  # clients from whom the first centres are taken; 0: all
    server: ServerOptimiser = field(default=ServerOptimiser(), kw_only=True)  # of the average

    kind = "clustered"

    @property
    def score(self) -> Score:
        """Every client tests its centre."""
        return Score()

    @property
    def local(self) -> Solver:
        """Plain SGD."""
        return self.solver

    def init(self, fed: Federation) -> State:
        """Every centre is w^0 until the first round has told clients apart."""
        predictions(fed.layout.initial[None], fed)  # without public samples, say so before training
        models = fed.layout.initial.repeat(self.clusters, 1)
        return State.nobody(models, len(fed.clients))

    def round(self, state: State, fed: Federation) -> State:
        """Train (Eq. 15-16), compare on the indicator samples (Eq. 6-7), average (Eq. 17)."""
        w = fed.ask(fed.sample(self.fraction), Train(self.local), provisional(state, fed))
        if not w:
            return state
        p = predictions(w.values, fed)  # (m, N_o, classes)
        first = "seeded" not in state.memory
        if first:
            some, _ = landmarks(replace(w, extra={"said": p}), self.landmarks, fed)
            state = self.seed(state, some.values, some.extra["said"], fed)
        u = closest(kl_logits(p, predictions(state.models, fed)))
        merged = self.server.merged(state.reassign(w.clients, u), w)
        return merged if first else self.server.advance(state, merged, fed.layout)

    def seed(self, state: State, w: Tensor, p: Tensor, fed: Federation) -> State:
        """The first centres: models of the first round (one too many stays w^0), or drawn anew."""
        k = min(self.clusters, len(w))
        rng = stream(fed.seed, "seeding", fed.round)
        if self.seeding == "random":
            fresh = (fed.layout.fresh(stream(fed.seed, "centre", c)) for c in range(self.clusters))
            return state.hold(torch.stack([*fresh]), seeded=torch.ones(1))
        if self.seeding == "farthest":
            chosen = farthest_first(kl_logits(p, p), k, rng)
        else:
            chosen = kmeanspp(kl_logits(p, p).clamp(min=0).sqrt(), k, rng)
        models = state.models.index_copy(0, torch.arange(k), w[chosen])
        return state.hold(models, seeded=torch.ones(1))

    def place(self, state: State, fed: Federation) -> State:
        """A newcomer trains an epoch from the mean of the centres and joins the nearest one."""
        if not len(state.unplaced) or "seeded" not in state.memory:
            return state
        task = Train(replace(self.solver, epochs=1, steps=0))
        w = fed.ask(state.unplaced, task, provisional(state, fed))
        if not w:
            return state
        D = kl_logits(predictions(w.values, fed), predictions(state.models, fed))
        return state.reassign(w.clients, closest(D))


@dataclass(frozen=True)
class FedDSMIC(FedDS):
    """FedDS with first-order MAML: a centre is learned so that one local step makes it personal."""

    eta: Positive = 0.01  # rate of the inner step, and of the step at evaluation

    @property
    def local(self) -> Solver:
        """Eq. 15-16, with independent mini-batches; momentum on the outer step only."""
        return replace(self.solver, meta=self.eta)

    @property
    def score(self) -> Score:
        """The centre, and what one full-batch step makes of it (Eq. 9)."""
        return Score(adapt=Solver(lr=self.eta, steps=1, batch=0))


def predictions(rows: Tensor, fed: Federation) -> Tensor:
    """(k, N_o, classes) logits of each model on the samples the server holds."""
    if fed.public is None or not len(fed.public):
        raise ConfigError(
            "this method compares models on samples that the server holds, and there are none",
            code="C044",
            fix="set data.public = 1 (samples per class, taken out before the data is divided)",
        )
    return torch.stack([fed.layout.predict(row, fed.public) for row in rows])
