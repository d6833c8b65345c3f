"""FedRC: clients share a model unless the same label means something else to them.

Guo, Tang, Lin: FedRC: Tackling Diverse Distribution Shifts Challenge in Federated Learning by
Robust Clustering. ICML 2024.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from coterie.core.bounds import Count, dataclass
from coterie.core.types import Evaluation, Federation, Replies, State
from coterie.methods.fedem import FedEM, ScoreMixture
from coterie.tasks import Score, Solver

LEAST = 1e-8  # samples of a label that every cluster is taken to have, as in the authors' code


@dataclass(frozen=True)
class FedRC(FedEM):
    """FedEM in which a cluster explains a sample only as far as it does more than know the label.

    The likelihood of a sample is divided by C_yk, the share of its label y among the samples of
    cluster k: what differs in labels or features alone is no reason to part.
    """

    solver: Solver = Solver(lr=0.06, epochs=1, batch=128)
    clusters: Count = 3  # K
    hard: bool = False  # test the heaviest cluster's model alone, not the mixture

    @property
    def score(self) -> Evaluation:  # type: ignore[override]
        """Every client tests its mixture, or the model of which there is most in it."""
        return Score() if self.hard else ScoreMixture()

    def init(self, fed: Federation) -> State:
        """At first every cluster has as much of each label."""
        state = super().init(fed)
        return state.hold(labels=state.models.new_full((state.k, fed.classes), 1 / fed.classes))

    def sent(self, state: State) -> Mapping[str, Tensor]:
        """C, (1, k, classes)."""
        return {"labels": state.memory["labels"][None]}

    def merged(self, state: State, w: Replies) -> State:
        """Clusters as in FedEM, and C anew from the samples of those who came."""
        C = w.extra["labels"].double().sum(0).clamp_min(LEAST)
        C = C / C.sum(1, keepdim=True)
        return super().merged(state, w).hold(labels=C.to(state.models.dtype))
