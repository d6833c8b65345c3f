"""FedAMP and HeurFedAMP: each client is pulled to a mixture of those whose models are like its own.

Huang, Chu, Zhou, Wang, Liu, Pei, Zhang: Personalized Cross-Silo Federated Learning on Non-IID Data.
AAAI 2021.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from coterie.core.bounds import NonNegative, Part, Positive, Share, dataclass
from coterie.core.rows import put, repeated, stacked
from coterie.core.types import Federation, State
from coterie.tasks import Score, Solver, Train
from coterie.words.affinity import attention, attention_rate, heuristic_attention
from coterie.words.distance import cosine, squared_l2
from coterie.words.mixing import mix, uniform


@dataclass(frozen=True)
class FedAMP:
    """A model of its own for each client, pulled towards its cloud model u_i.

    Row i of `state.models` is what client i trained last: the client holds it too, so that what
    travels is u_i down and w_i up. Who was not drawn takes part in the others' u with its last one.
    """

    solver: Solver = Solver(lr=0.01, epochs=1, batch=32)
    fraction: Share = 1.0  # of clients drawn in a round
    lam: NonNegative = 0.1  # lambda; the pull to u_i is lambda/alpha_k
    alpha: Positive = 1.0  # alpha_k, reduced where a client would keep less than nothing of its own
    sigma: Positive = 10.0  # the squared distance at which attention has fallen to 1/e
    start: Literal["own", "cloud"] = "own"  # where local training starts: w_i, or u_i

    kind = "personal"
    score = Score()  # every client tests its own model
    refuses: ClassVar[Mapping[str, str]] = {
        "server": "no model is an average: each client goes on with its own"
    }

    def init(self, fed: Federation) -> State:
        """Everybody starts from the same model."""
        return State(repeated(fed.layout.initial, len(fed.clients)), fed.clients)

    def round(self, state: State, fed: Federation) -> State:
        """u_i = sum_j xi_ij w_j; then w_i = argmin F_i(w) + lam/(2 alpha_k) |w - u_i|^2."""
        state = self.place(state, fed)
        cohort = fed.sample(self.fraction, among=state.placed)
        xi, alpha = self.attention(state.models[:, : fed.layout.trainable])  # (k, k)
        u = mix(xi[state.assign[cohort]], state.models)
        # A step of more than 1/lr would jump over u_i, which no minimiser does.
        pull = min(self.lam / alpha, 1 / self.solver.lr)
        task = Train(replace(self.solver, prox=pull), continues=True)
        send = {"anchor": u} if self.start == "own" else {"start": u}
        w = fed.ask(cohort, task, state, **send)
        return state.hold(put(state.models, state.assign[w.clients], w.values))

    def attention(self, w: Tensor) -> tuple[Tensor, float]:
        """xi (k, k), and the alpha_k that leaves no xi_ii below zero."""
        d2 = squared_l2(w)
        return attention(d2, self.alpha, self.sigma), attention_rate(d2, self.alpha, self.sigma)

    def place(self, state: State, fed: Federation) -> State:
        """A newcomer trains once from the mean of all models; nobody knows yet whom it is like."""
        new = state.unplaced
        if not len(new):
            return state
        mean = mix(uniform(state.k), state.models)  # (1, P)
        lodged = State.shared(mean[0], len(fed.clients))
        w = fed.ask(new, Train(self.solver, continues=True), lodged, start=mean)
        rows = torch.arange(state.k, state.k + len(w))
        return state.hold(stacked(state.models, w.values)).reassign(w.clients, rows)


@dataclass(frozen=True)
class HeurFedAMP(FedAMP):
    """FedAMP with attention by angle, which means more than distance between deep networks."""

    sigma: Positive = 100.0  # how much an angle matters: xi_ij grows as exp(sigma cos)
    self_weight: Part | None = None  # xi_ii; not set: as much as a client gets on average, 1/n

    def attention(self, w: Tensor) -> tuple[Tensor, float]:
        """A fixed share for oneself, softmax of the cosines for the others."""
        own = 1 / len(w) if self.self_weight is None else self.self_weight
        return heuristic_attention(cosine(w), own, self.sigma), self.alpha
