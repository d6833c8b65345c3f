"""Runs to report on: small real ones, and one made up that is large."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import coterie
from coterie.core.client import Client
from coterie.data.population import Population
from coterie.report.run_data import Insight, RunData, Series
from coterie.studies.run.result import Result
from coterie.tasks.solver import Solver
from tests import tiny

SCRIPT = "<script>alert(1)</script>"
SOLVER = Solver(lr=0.1, batch=8)


def clients(n: int = 8) -> list[Client]:
    """The first has a name that a careless page would run."""
    first, *rest = tiny.clients(n)
    return [replace(first, name=SCRIPT), *rest]


def population(n: int = 8) -> Population:
    return Population.of(clients(n), tiny.CLASSES, group=[i * 2 // n for i in range(n)])


def trained(method: Any, out: Path | None = None, rounds: int = 3, **plan: Any) -> Result:
    return coterie.fit(method, population(), tiny.network(), rounds=rounds, out=out, **plan)


def large(n: int = 1_000, rounds: int = 30, k: int = 12) -> RunData:
    """A made-up run of many clients in more clusters than there are named colours."""
    rng = np.random.default_rng(0)
    group = np.arange(n) % k
    assign = np.tile(group, (rounds + 1, 1))
    for t in range(rounds):
        moved = rng.choice(n, n // (t + 2), replace=False)
        assign[t, moved] = rng.integers(0, k, len(moved))
    assign[0] = -1
    t = np.arange(rounds + 1)
    accuracy = np.clip(1 - np.exp(-t[:, None] / 8) + rng.normal(0, 0.05, (rounds + 1, n)), 0, 1)
    whole = {
        ("before", "accuracy_mean"): accuracy.mean(1),
        ("before", "accuracy_worst"): accuracy.min(1),
        ("before", "accuracy_bottom_5"): np.sort(accuracy, 1)[:, :5].mean(1),
        ("before", "accuracy_bottom_10pct"): np.sort(accuracy, 1)[:, : n // 10].mean(1),
        ("before", "loss"): 2 - accuracy.mean(1),
        ("before", "auc_mean"): accuracy.mean(1),
        ("before", "auc_clients"): np.full(rounds + 1, n),
        **{("before", f"class_{k}_accuracy"): accuracy.mean(1) for k in range(10)},
        ("clusters", "ari"): t / rounds,
        ("clusters", "nmi"): t / rounds,
        ("clusters", "churn"): 1 / (t + 2),
    }
    place = rng.normal(0, 1, (k, 3))[group] + rng.normal(0, 0.2, (n, 3))
    D = np.linalg.norm(place[:, None] - place[None], axis=2)
    return RunData(
        title="large",
        settings='method = "fedclust"\nseed = 0\n',
        events=tuple(
            [
                {"event": "rejected", "round": 3, "client": f"client {i}", "why": "nan"}
                for i in (4, 5)
            ]
            + [{"event": "round", "round": int(r), "rounds": rounds, "seconds": 1.0} for r in t]
            + [{"event": "done", "seconds": 30.0}]
        ),
        summary={},
        clients=(SCRIPT, *(f"client {i}" for i in range(1, n))),
        rounds=t,
        assign=assign,
        group=np.tile(group, (rounds + 1, 1)),
        tested=t,
        accuracy={"before": accuracy},
        loss={"before": 2 - accuracy},
        whole={key: Series(t, values) for key, values in whole.items()},
        down=np.full((rounds + 1, n), 1000.0),
        up=np.full((rounds + 1, n), 1000.0) * (1 + np.arange(n) % 3),
        memory={"distance": D, "trajectories": rng.normal(0, 1, (n, 2, 10))},
        models=k,
        notes={},
        insight=Insight(
            classes=tuple("0123456789"),
            counts=rng.integers(0, 50, (n, 10)),
            cross=rng.uniform(0, 1, (k, k)),
            clusters=tuple(range(k)),
        ),
    )
