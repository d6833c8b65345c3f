"""What kin does where it could do harm or good: `python -m bench.kin development drift`.

Cases with their bars. Those of development were looked at while kin was made; those of evaluation
were run once it was frozen. One line a run, and one a case: how many of its runs meet the bar, or
for accuracy the mean over seeds beside FedAvg and FedAvg with fine-tuning.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

import coterie as ct
from coterie import engines
from coterie.core.loop import evaluate, run
from coterie.data.dataset import Data
from coterie.data.population import Population
from coterie.runs.metrics import clusters_correct
from coterie.studies.run.training import build_layout

HARMLESS = 1.5  # points below the better of the two that are no harm
SOLVER = ct.Solver(lr=0.05, epochs=2, batch=32)
FAST = ct.Solver(lr=0.1, epochs=2, batch=32)
FEDCLUST = ct.Solver(lr=0.01, optimiser=ct.SGD(momentum=0.5), epochs=10, batch=10)


@dataclass(frozen=True)
class Case:
    """A federation, how it trains, and what must come of it."""

    data: str
    kind: str  # of partition
    bar: str  # one: a single cluster; stays: as at first; right: everybody; harmless: accuracy
    each: int = 200  # training samples of a client; 0: all there are
    clients: int = 20
    rounds: int = 16
    fraction: float = 1.0
    within: int = 8  # rounds in which everybody must be right again
    solver: ct.Solver = SOLVER
    test: Literal["own", "labels"] = "own"

    def __str__(self) -> str:
        drawn = f", {self.fraction:.0%} drawn" if self.fraction < 1 else ""
        rate = f", rate {self.solver.lr:g}" if self.solver.lr != SOLVER.lr else ""
        size = f"{self.each} each" if self.each else "all"
        return f"{self.data} {self.kind}, {self.clients} clients, {size}{drawn}{rate}: {self.bar}"

    @property
    def model(self) -> str:
        """The network: small for the smallest images."""
        return "cnn-s" if self.data == "digits" else "lenet5"

    def population(self, seed: int) -> Population:
        """The clients; a fifth of each one's samples are for its test."""
        data = loaded(self.data, round(self.each * self.clients / 0.8))
        return ct.partition(data, self.kind, self.clients, seed, test=self.test)


@dataclass(frozen=True)
class Run:
    """What came of one."""

    assign: Sequence[Tensor]  # (n,) before the first round and after each
    right: Sequence[int]  # clients rightly placed, where groups were planted
    before: float  # accuracy in %, of the model as it is
    after: float  # as it is used
    down: float  # models that crossed, of each client and round
    up: float
    trained: float  # passes over the data, of those in a usual round
    seconds: float
    turns: Sequence[int] = field(default_factory=list)  # rounds in which clients changed groups

    @property
    def clusters(self) -> list[int]:
        """How many clusters were in use, before the first round and after each."""
        return [len(a[a >= 0].unique()) for a in self.assign]

    @property
    def recovered(self) -> list[int | None]:
        """Rounds from each change until everybody was right; None: not before the next."""
        ends, n = [*self.turns[1:], len(self.right)], len(self.assign[0])
        return [
            next((t - at for t in range(at + 1, end) if self.right[t] == n), None)
            for at, end in zip(self.turns, ends, strict=True)
        ]


@cache
def loaded(name: str, limit: int) -> Data:
    """A data set, or a part of it."""
    return ct.load(name, limit=limit or None)


def trained(case: Case, method: Any, seed: int) -> Run:
    """One run on one core."""
    began = time.perf_counter()
    people = case.population(seed)
    layout = build_layout(case.model, people.shape, people.classes, seed=seed)
    who = engines.settle("auto", 1, people, layout, method)
    with engines.build(who.name, people, layout, seed) as fed:  # type: ignore[attr-defined]
        states = list(run(method, fed, case.rounds))
        asked = list(fed.ledger)
        scores = 100 * evaluate(method, states[-1], fed).accuracy.mean(1)
    truth = [people.at(t).group for t in range(len(states))]
    usual = case.rounds * max(1, round(case.fraction * case.clients))
    epochs = case.solver.seen(people.sizes).sum() / case.clients
    return Run(
        [s.assign for s in states],
        [
            0 if g is None else clusters_correct(g, s.assign)
            for g, s in zip(truth, states, strict=True)
        ],
        float(scores[0]),
        float(scores[-1]),
        sum(int(a.down.sum()) for a in asked) / (4 * layout.size * usual),
        sum(int(a.up.sum()) for a in asked) / (4 * layout.size * usual),
        float(sum(a.samples for a in asked) / (epochs * usual)),
        time.perf_counter() - began,
        people.course.turns(case.rounds),
    )


def met(case: Case, run: Run) -> bool:
    """Whether a run meets the bar of its case."""
    if case.bar == "one":
        return run.clusters[-1] == 1
    if case.bar == "stays":
        return canonical(run.assign[-1]) == canonical(run.assign[0])
    if run.turns:
        return all(took is not None and took <= case.within for took in run.recovered)
    return run.right[-1] == len(run.assign[-1])


def canonical(assign: Tensor) -> list[int]:
    """Clusters in order of first appearance."""
    return ct.grouping.canonical(assign).tolist()


def told(case: Case, run: Run) -> str:
    """One run in a line."""
    k, n = run.clusters, len(run.assign[0])
    words = [f"clusters {k[0]}, most {max(k)}, {k[-1]}"]
    if run.right[0]:
        words.append(f"right {run.right[0]}, {run.right[-1]} of {n}")
    if run.turns:
        words.append(f"recovered {', '.join(str(took or 'never') for took in run.recovered)}")
    words.append(f"accuracy {run.before:.1f}, {run.after:.1f}")
    words.append(f"down {run.down:.2f} up {run.up:.2f} trained {run.trained:.2f}")
    return "; ".join(words) + f"; {run.seconds:.0f} s"


def judged(case: Case, seeds: Sequence[int], options: dict[str, Any]) -> None:
    """Run a case with each seed, line by line, and sum up."""
    method = ct.Kin(case.solver, fraction=case.fraction, **options)
    runs, points = [], []
    for seed in seeds:
        found = trained(case, method, seed)
        runs.append(found)
        line = f"  {seed}: {told(case, found)}"
        if case.bar == "harmless":
            shared = trained(case, ct.FedAvgFT(case.solver, fraction=case.fraction), seed)
            points.append(found.after - max(shared.before, shared.after))
            line += f"; FedAvg {shared.before:.1f}, tuned {shared.after:.1f}"
        print(line, flush=True)
    if points:
        mean = statistics.mean(points)
        said = "no harm" if mean >= -HARMLESS else "HARM"
        print(f"{said}: {mean:+.1f} points | {case}", flush=True)
    else:
        good = sum(met(case, found) for found in runs)
        print(f"{good} of {len(runs)} | {case}", flush=True)


def several(data: Sequence[str], kinds: Sequence[str], bar: str, **fields: Any) -> list[Case]:
    """A case for each data set and kind of partition."""
    return [Case(d, kind, bar, **fields) for d in data for kind in kinds]


def cases(real: Sequence[str], small: Sequence[str], n: int) -> dict[str, list[Case]]:
    """The cases on these data sets, the small ones for IID alone, with about n clients."""
    groups = ["rotation", "permutation", "label-groups"]
    of_size = [(30, 16), (100, 16), (500, 8)]
    iid = [
        c for e, r in of_size for c in several(real, ["iid"], "one", each=e, clients=n, rounds=r)
    ]
    iid += several(small, ["iid", "iid+quantity"], "one", each=0, clients=min(n, 20))
    dirichlet = ["dirichlet:0.1", "dirichlet:0.3", "dirichlet:0.5"]

    def drift(how: str, **fields: Any) -> list[Case]:
        return several(real, [f"{g}+{how}" for g in groups], "right", clients=n, **fields)

    return {
        "iid": iid,
        "groups": several(real, groups, "stays", clients=n),
        "drift": drift("drift:8", rounds=17),
        "drift-30": drift("drift:10", rounds=31, fraction=0.3, within=20),
        "gradual": drift("drift:6,0.2,gradual,5", rounds=18),
        "recurring": drift("drift:6,0.2,recurring,8", rounds=23),
        "newcomers": drift("arrivals:6,0.3", rounds=9),
        "harmless": several(real, dirichlet, "harmless", clients=n, rounds=20)
        + several(real, ["iid", "label-groups"], "harmless", clients=n, rounds=20, each=30)
        + several(small, ["iid"], "harmless", clients=10, rounds=30, each=0, solver=FAST),
    }


SKEW = Case(
    *("fashion-mnist", "label-skew:0.2", "harmless"),
    each=0, clients=100, rounds=30, fraction=0.1, solver=FEDCLUST, test="labels",
)  # fmt: skip
CASES = {
    "development": cases(["fashion-mnist", "mnist"], ["digits"], 20) | {"skew": [SKEW]},
    # 28 clients and seeds 0 to 9 were the first evaluation, which kin was changed after
    "evaluation": cases(["cifar10", "fashion-mnist"], ["svhn"], 24) | {"skew": [SKEW]},
}
SEEDS = {"development": "31-33", "evaluation": "10-12"}


def main() -> None:
    """Run some cases."""
    options = argparse.ArgumentParser(prog="python -m bench.kin", description=__doc__)
    options.add_argument("part", choices=CASES)
    options.add_argument("names", nargs="*", help=", ".join(CASES["development"]))
    options.add_argument("--seeds", help="first-last")
    options.add_argument("--data", nargs="*", help="only these sets")
    options.add_argument("--only", default="", help="cases whose line has this text")
    options.add_argument("--set", nargs="*", default=[], help="options of kin: look=4")
    given = options.parse_args()
    torch.set_num_threads(1)
    first, last = map(int, (given.seeds or SEEDS[given.part]).split("-"))
    fields = {
        name: float(v) if "." in v else int(v) for name, v in (s.split("=") for s in given.set)
    }
    for name in given.names or CASES[given.part]:
        for case in CASES[given.part][name]:
            if given.only in str(case) and case.data in (given.data or [case.data]):
                judged(case, range(first, last + 1), fields)


if __name__ == "__main__":
    main()
