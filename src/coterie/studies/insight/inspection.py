"""How heterogeneous a federation is, and what clustering would make of it, before any method runs.

Two views. CFLGT's: the gradient trajectories of the clients, and how much they vary. FedClust's:
one distance matrix, and what every threshold would give. Whether there are clusters is judged once,
by FedClust's automatic cut: verdict, advice and facts all follow it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from coterie import engines
from coterie.core.loop import run
from coterie.core.rng import stream
from coterie.core.types import State
from coterie.core.units import count
from coterie.data.population import Population
from coterie.methods.cflgt import CFLGT
from coterie.methods.fedclust import FedClust
from coterie.runs import metrics
from coterie.studies.atlas.advice import Advice, Lesson, Reading
from coterie.studies.insight.signs import noise_floor, signs
from coterie.studies.run.arguments import clients_of
from coterie.studies.run.training import Model, build_layout
from coterie.tasks.signature import Trajectory
from coterie.tasks.solver import Solver
from coterie.words.distance import variation
from coterie.words.grouping import (
    Curve,
    Cut,
    Linkage,
    Verified,
    auto_cut,
    curve,
    mean_hopkins,
)

CLEAR = 2.0  # standard errors, over clients, of what groups explain


@dataclass(frozen=True)
class Inspection:
    """What can be told of n clients and C classes before they are clustered."""

    names: tuple[str, ...]  # n
    classes: tuple[str, ...]  # C
    group: Tensor | None  # (n,) the planted groups, where there are any
    rounds: int  # of FedAvg before the trajectories
    trajectories: Tensor  # (n, 2, C) pull and push of each class
    pull: float  # coefficient of variation over clients and classes
    push: float
    hopkins: float  # mean; about 0.5 without clusters, towards 1 with
    measure: str  # of the distances: update_cosine or l2
    distance: Tensor  # (n, n) between the final layers after one local training
    curve: Curve  # threshold, number of clusters, silhouette
    cut: Cut  # where the tree is cut if nobody says where
    missing: tuple[str, ...] = ()  # clients whose numbers were not finite
    signs: Mapping[str, float] = field(default_factory=dict)  # of how clients differ, beyond noise
    floor: Verified | None = None  # groups that hold on the other half of everybody's data

    @property
    def clustered(self) -> bool:
        """Whether the automatic cut finds more than one cluster clear enough to accept."""
        return self.cut.k > 1

    @property
    def verdict(self) -> str:
        """The number of the trajectories, and what the automatic cut finds."""
        k, ratio, score = self.cut.k, self.cut.ratio, self.cut.silhouette
        clear = f"gap {ratio:.2f}, silhouette {score:.2f}"
        found = (
            f"{count(k, 'cluster')} ({clear})"
            if self.clustered
            else f"one cluster (the best cut had {clear})"
        )
        if self.group is not None:
            right = metrics.clusters_correct(self.group, self.cut.labels)
            found += f"; {right} of {len(self.names)} clients as planted"
        return (
            f"trajectories: Hopkins {self.hopkins:.2f} (0.5 is chance)\n"
            f"updates: the automatic cut finds {found}"
        )

    @property
    def checked(self) -> str:
        """Whether groups hold on the half of everybody's data that they were not made from."""
        if self.floor is None:
            return ""
        if self.floor.gain <= 0 or self.floor.sure < CLEAR:
            return "noise floor: no groups made from one half of everybody's data hold on the other"
        k, gain, sure = count(self.floor.k, "group"), self.floor.gain, self.floor.sure
        return (
            f"noise floor: {k} made from one half of everybody's data explain {gain:.0%} of how "
            f"the other halves differ ({sure:.1f} standard errors)"
        )

    @cached_property
    def reading(self) -> Reading | None:
        """The kind of difference of the atlas that these clients are most like, if it has any."""
        advice = Advice.load()
        return advice.read(self.signs) if advice and self.signs else None

    @cached_property
    def lesson(self) -> Lesson | None:
        """What the atlas says of that kind; None if it has no results of it."""
        advice = Advice.load()
        return advice.lessons.get(self.reading.kind) if advice and self.reading else None

    def facts(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "clients": list(self.names),
            "classes": list(self.classes),
            "groups": None if self.group is None else self.group.tolist(),
            "missing": list(self.missing),
            "rounds": self.rounds,
            "trajectories": {
                name: {"pull": pull, "push": push}
                for name, (pull, push) in zip(self.names, self.trajectories.tolist(), strict=True)
            },
            "variation": {"pull": self.pull, "push": self.push},
            "hopkins": self.hopkins,
            "clustered": self.clustered,
            "distance": self.measure,
            "curve": [
                {"threshold": t, "clusters": k, "silhouette": s}
                for t, k, s in zip(*(x.tolist() for x in vars(self.curve).values()), strict=True)
            ],
            "cut": {
                "threshold": self.cut.threshold,
                "clusters": self.cut.k,
                "ratio": self.cut.ratio,
                "silhouette": self.cut.silhouette,
                "labels": self.cut.labels.tolist(),
            },
            "verdict": self.verdict,
            "signs": dict(self.signs),
            "noise_floor": self.floor
            and {
                "groups": self.floor.k,
                "gain": self.floor.gain,
                "standard_errors": self.floor.sure,
                "peers": self.floor.peers,
                "labels": self.floor.labels.tolist(),
            },
            "like": self.reading and asdict(self.reading),
            "advice": self.lesson and asdict(self.lesson),
        }

    def plot(self) -> Any:
        """A plotly figure: trajectories by planted group, or by cluster; and the curve."""
        from coterie.report.charts import inspection

        kind, labels = ("cluster", self.cut.labels) if self.group is None else ("group", self.group)
        above = f"gradient trajectories, {len(self.names):,} clients (Hopkins {self.hopkins:.2f})"
        below = f"clusters by threshold ({self.measure})"
        drawn = inspection.figure((above, below))
        given = (self.trajectories, self.names, self.classes, labels.tolist())
        inspection.add_trajectories(drawn, *given, kind)
        curve = self.curve.threshold, self.curve.k, self.curve.silhouette
        inspection.add_thresholds(drawn, *curve, self.cut.threshold)
        return drawn.update_layout(height=900, title=self.verdict.replace("\n", "<br>"))


def inspect(
    population: Population,
    model: Model = "auto",
    *,
    rounds: int = 1,
    seed: int = 0,
    solver: Solver | None = None,
    distance: Literal["update_cosine", "l2"] = "update_cosine",
    linkage: Linkage = "average",
    head: str | None = None,
    model_options: dict[str, Any] | None = None,
    method: FedClust | None = None,
) -> Inspection:
    """Look at a federation through the eyes of CFLGT and of FedClust; nothing is changed or kept.

    `rounds` of FedAvg with everybody come before the trajectories: one is enough to see groups, and
    0 takes them from the initial model; the paper's 25 are for comparison. The distances are those
    between final layers after FedClust's warm-up from the initial model: of their updates by angle
    (`update_cosine`), or Eq. 3 (`l2`), on which a threshold of the paper is meant. `solver` is the
    local training of both; `method` a FedClust whose other settings count.
    """
    population = clients_of(population)
    layout = build_layout(
        model, population.shape, population.classes, seed=seed, head=head, options=model_options
    )
    fed = engines.build("serial", population, layout, seed)
    local = solver or Solver(lr=0.05, epochs=2, batch=32)
    *_, trained = run(CFLGT(solver=local, pretrain=rounds), fed, rounds)
    z = fed.at(rounds).ask(fed.clients, Trajectory(), trained)
    clust = replace(method or FedClust(), solver=local, distance=distance, linkage=linkage)
    start = State.shared(fed.layout.initial, len(fed.clients))
    theta = fed.at(-1).ask(fed.clients, clust.warm(fed.sizes), start)
    both = fed.clients[torch.isin(fed.clients, z.clients) & torch.isin(fed.clients, theta.clients)]
    T = z.values[torch.isin(z.clients, both)]
    D = clust.distances(theta.values[torch.isin(theta.clients, both)], fed)
    pull, push = variation(T).tolist()
    found = noise_floor(fed.at(-2), local)
    answered = set(both.tolist())
    return Inspection(
        names=tuple(fed.names[i] for i in both.tolist()),
        classes=population.class_names,
        group=None if population.group is None else population.group[both],
        rounds=rounds,
        trajectories=T,
        pull=pull,
        push=push,
        hopkins=mean_hopkins(T.flatten(1), stream(seed, "hopkins", rounds)),
        measure=distance,
        distance=D,
        curve=curve(D, linkage),
        cut=auto_cut(D, linkage=linkage, attach=clust.attach),
        missing=tuple(name for i, name in enumerate(fed.names) if i not in answered),
        signs=signs(found, population, population.classes),
        floor=found.groups,
    )
