"""FedSoft: a client may belong to several clusters, each by a share of its samples.

Ruan, Joe-Wong: FedSoft: Soft Clustered Federated Learning with Proximal Local Updating. AAAI 2022.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from coterie.core.bounds import Count, NonNegative, Part, Share, dataclass
from coterie.core.rng import stream
from coterie.core.types import Federation, Replies, State
from coterie.tasks import Importance, Pulled, Score, Solver
from coterie.words.affinity import soft_weights
from coterie.words.mixing import mix


@dataclass(frozen=True)
class FedSoft:
    """S centres; each client keeps one model, pulled to all centres by how well they fit its data.

    `state.models` are the centres, and a client counts to the one most of its samples prefer; its
    personal model stays with it, and is what is tested.
    """

    solver: Solver = Solver(lr=0.01, epochs=10, batch=64)
    fraction: Share = 1.0  # of clients drawn in a round
    clusters: Count = 3  # S
    tau: Count = 2  # rounds between two estimates of the importance of the centres
    sigma: Part = 1e-4  # the least importance of a centre
    lam: NonNegative = 0.1  # lambda, strength of the pull to the centres

    kind = "clustered"
    score = Score(private="all")  # every client tests its personal model
    refuses: ClassVar[Mapping[str, str]] = {
        "server": "nobody trains from a centre: there is no step from it to take",
        "merge": "every client counts for every centre, by its shares",
    }

    def init(self, fed: Federation) -> State:
        """S different centres, and nobody knows them yet."""
        rows = [fed.layout.fresh(stream(fed.seed, "centre", s)) for s in range(self.clusters)]
        return State.nobody(torch.stack(rows), len(fed.clients)).hold(
            importance=torch.zeros(len(fed.clients), self.clusters, dtype=fed.layout.dtype)
        )

    def round(self, state: State, fed: Federation) -> State:
        """Every tau rounds u is estimated anew; local models move; centres follow (Algorithm 1)."""
        if state.round % self.tau == 0:
            state = self.weigh(state, fed.ask(fed.clients, Importance(self.sigma), state))
        state = self.place(state, fed)
        cohort = fed.sample(self.fraction, among=state.placed)
        w = fed.ask(cohort, Pulled(self.solver), state, **self.pull(state, cohort))
        if not w:
            return state
        u = state.memory["importance"][w.clients]  # (m, S)
        return state.hold(mix(soft_weights(u, w.counted()), w.values, keep=state.models))

    def weigh(self, state: State, u: Replies) -> State:
        """Remember how much of each client every centre fits best."""
        if not u:
            return state
        known = state.memory["importance"]
        grown = known.new_zeros(len(state.assign) - len(known), state.k)  # newcomers
        table = torch.cat([known, grown]).index_copy(0, u.clients, u.values)
        return state.hold(importance=table).reassign(u.clients, u.values.argmax(1))

    def pull(self, state: State, cohort: Tensor) -> dict[str, Tensor]:
        """What is sent to each client of the cohort: one point, and how strong it pulls.

        The local objective adds (lam/2) sum_s u_s |w - c_s|^2, whose gradient is
        lam sum_s u_s (w - c_s) = lam U (w - cbar), with U = sum_s u_s and cbar the mean of the
        centres by u: one anchor does what S centres do. In the first round nothing pulls: the
        centres are random networks, and half-way to one of them is a worse start than none.
        """
        u = state.memory["importance"][cohort]  # (m, S)
        U = u.sum(1)
        lam = self.lam if state.round else 0.0
        return {"anchor": mix(u / U[:, None], state.models), "prox": lam * U}

    def place(self, state: State, fed: Federation) -> State:
        """A newcomer weighs the centres and trains once from their mean, by those weights."""
        new = state.unplaced
        if not len(new):
            return state
        u = fed.ask(new, Importance(self.sigma), state)
        state = self.weigh(state, u)
        if state.round and u:
            sent = self.pull(state, u.clients)
            fed.ask(u.clients, Pulled(self.solver), state, start=sent["anchor"], **sent)
        return state
