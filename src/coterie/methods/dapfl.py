"""DA-PFL: borrow from those who have the classes you lack.

Yang, Feng, Guo, Wang, Ding, Fang, Liao: DA-PFL: Dynamic Affinity Aggregation for Personalized
Federated Learning. 2024.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from coterie.core.bounds import NonNegative, Positive, Share, dataclass
from coterie.core.rows import put, repeated, stacked
from coterie.core.types import Federation, State, Task
from coterie.tasks import Histogram, Score, Solver, Train
from coterie.words import affinity
from coterie.words.distance import squared_l2
from coterie.words.mixing import average, mix


@dataclass(frozen=True)
class DAPFL:
    """A model of its own for each client, pulled towards a mixture of the others' models.

    Row i of `state.models` is what client i trained last: the client holds it too, so that what
    travels is the mixture down and the trained model up. Class counts are sent once, in the clear.
    """

    solver: Solver = Solver(lr=0.01, epochs=1, batch=10)
    fraction: Share = 0.4  # of clients drawn in a round
    lam: NonNegative = 0.1  # lambda, strength of the pull (not given in the paper)
    sigma: Positive | Literal["median"] = "median"  # of Eq. 7; median: of this round's distances
    eps: Positive = 1e-8  # of Eq. 7
    variant: Literal["full", "v2", "v1"] = "full"  # v2: affinity alone; v1: the plain average
    norm: Literal["minmax", "max"] = "minmax"  # how affinities are brought to [0, 1]

    kind = "personal"
    score = Score()  # every client tests its own model
    refuses: ClassVar[Mapping[str, str]] = {
        "server": "no model is an average: each client goes on with its own"
    }

    @property
    def local(self) -> Train:
        """Eq. 10: from the client's own model, pulled towards the mixture it is sent."""
        return Train(replace(self.solver, prox=self.lam), continues=True)

    def asks(self, rounds: int, sizes: Tensor) -> list[tuple[Task, int]]:
        """What a client is asked at most, and how often: for its privacy account."""
        return [(Histogram(privacy=self.solver.privacy), 1), (self.local, rounds)]

    def init(self, fed: Federation) -> State:
        """Everybody starts from w^0 and tells its class counts."""
        return self.place(State.nobody(fed.layout.initial[None][:0], len(fed.clients)), fed)

    def round(self, state: State, fed: Federation) -> State:
        """Mix the drawn clients' models (Eq. 7-9), train towards the mixtures (Eq. 10)."""
        state = self.place(state, fed)
        cohort = fed.sample(self.fraction, among=state.placed)
        rows = state.assign[cohort]
        w = state.models[rows]  # (m, P)
        C = self.affinity(state, rows)  # (m, m)
        learned = w[:, : fed.layout.trainable]  # statistics of batch normalisation are no distance
        anchor = mix(self.weights(C, learned, fed.sizes[cohort]), w)  # w_i^g
        new = fed.ask(cohort, self.local, state, anchor=anchor)
        return state.hold(put(state.models, state.assign[new.clients], new.values))

    def affinity(self, state: State, rows: Tensor) -> Tensor:
        """(m, m) of the clients that hold these rows, on the scale of all (Eq. 5, 6)."""
        c = affinity.complementarity(state.memory["counts"][rows])
        return affinity.scaled(c, state.memory["range"], self.norm)

    def weights(self, C: Tensor, w: Tensor, sizes: Tensor) -> Tensor:
        """alpha (m, m): whose model goes into whose mixture; alone, one's own."""
        if self.variant == "v1":
            return average(sizes).repeat(len(w), 1)
        if self.variant == "v2":
            return affinity.static_weights(C)
        d2 = squared_l2(w)
        sigma = affinity.median_sigma(d2) if self.sigma == "median" else self.sigma
        return affinity.dynamic_weights(C, d2, sigma, self.eps)

    def place(self, state: State, fed: Federation) -> State:
        """Class counts first; a newcomer then starts from the mixture that suits it."""
        if not len(state.unplaced):
            return state
        s = fed.ask(state.unplaced, Histogram(fed.classes, self.solver.privacy), state)
        k, m = state.k, len(s)
        if not m:
            return state
        counts = torch.cat([state.memory.get("counts", s.values[:0]), s.values])  # (k + m, classes)
        start = repeated(fed.layout.initial, m)
        if k:
            C = affinity.affinity(counts, self.norm)[k:, :k]
            to = torch.where(C.sum(1, keepdim=True) > 0, C, 1.0)  # or to everybody
            start = mix(to / to.sum(1, keepdim=True), state.models)
        rows = torch.arange(k, k + m)
        state = replace(state, models=stacked(state.models, start)).reassign(s.clients, rows)
        state = state.hold(counts=counts, range=affinity.complementarity_range(counts))
        if not k:
            return state
        new = fed.ask(s.clients, self.local, state, start=start, anchor=start)
        return state.hold(put(state.models, state.assign[new.clients], new.values))
