"""FedNova: who makes more steps does not count for more.

Wang, Liu, Liang, Joshi, Poor: Tackling the Objective Inconsistency Problem in Heterogeneous
Federated Optimization. NeurIPS 2020.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from coterie.core.bounds import dataclass
from coterie.core.types import Federation, State
from coterie.methods.fedavg import FedAvg
from coterie.tasks import SGD, Solver, Train, sgd
from coterie.words.mixing import advance, average, normalised, step_norm


@dataclass(frozen=True)
class FedNova(FedAvg):
    """FedAvg whose updates are divided by the number of local steps before they are averaged."""

    solver: Solver = Solver(lr=0.02, optimiser=SGD(momentum=0.9), epochs=2, batch=32)

    refuses: ClassVar[Mapping[str, str]] = {
        "optimiser": "its weights |a_i| count how often a gradient enters the steps of SGD",
        "nesterov": "its weights |a_i| are those of plain momentum",
        "server": "its weights |a_i| say how long the step of the server is",
        "merge": "its weights |a_i| follow from how many steps a client says it made",
    }

    def round(self, state: State, fed: Federation) -> State:
        """w <- w - tau_eff sum_i p_i (w - w_i)/|a_i|_1, tau_eff = sum_i p_i |a_i|_1."""
        state = self.place(state, fed)
        task = Train(self.solver, report=("steps",))
        w = fed.ask(fed.sample(self.fraction), task, state)
        if not w:
            return state
        rho = sgd(self.solver.optimiser, "FedNova").momentum
        a = step_norm(w.extra["steps"], rho)  # (m,) |a_i|_1
        sizes = w.counted()
        return advance(state, w, normalised(sizes, a), fed.layout, mean=average(sizes))
