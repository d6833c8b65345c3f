"""What papers report of a run, each under a name; accuracies in percent, as papers print them."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from coterie.runs import metrics, newcomers
from coterie.runs.comparison import Cell

Measure = Callable[[Cell, str], float | None]  # of a run, in a setting of the paper's


def curve(cell: Cell, metric: str = "accuracy_mean") -> dict[int, float]:
    """A number of the federation by round, without the untrained model's."""
    series = cell.history.series(metric, cell.stage)
    return {t: v for t, v in series.items() if t > 0}


def final(cell: Cell, setting: str) -> float:
    """Mean accuracy over clients after the last round."""
    return 100 * float(cell.numbers["accuracy_mean"])


def tuned(cell: Cell, setting: str) -> float | None:
    """Mean accuracy over clients after some local epochs from the last model (evaluate.tuned)."""
    found = cell.summary.get("tuned")
    return None if found is None else 100 * float(found["accuracy_mean"])


def last(k: int) -> Measure:
    """Mean accuracy over clients and the last k rounds."""

    def measure(cell: Cell, setting: str) -> float:
        return 100 * metrics.last_k_mean(list(curve(cell).values()), k)

    return measure


def top5_weighted(cell: Cell, setting: str) -> float:
    """Accuracy weighted by samples, over the five best rounds."""
    return 100 * metrics.top_k_mean(list(curve(cell, "accuracy_weighted").values()), 5)


def bottom5_in_top5(cell: Cell, setting: str) -> float:
    """The five worst clients, over the five rounds with the best weighted accuracy."""
    weighted, bottom = (curve(cell, f"accuracy_{name}") for name in ("weighted", "bottom_5"))
    return 100 * metrics.in_top_k(list(weighted.values()), list(bottom.values()), 5)


def newcomers_given(cell: Cell, setting: str) -> float | None:
    """Newcomers, weighted by samples, as their method tests anybody: after its own adaptation."""
    joined = newcomers.read(cell.folder)
    return None if joined is None else weighted(joined, 0)


def newcomers_adapted(cell: Cell, setting: str) -> float | None:
    """Newcomers after all epochs of adaptation, each counted once."""
    joined = newcomers.read(cell.folder)
    found = None if joined is None else joined.accuracy(joined.epochs)
    return None if found is None else 100 * found


def weighted(joined: newcomers.Joined, epochs: int) -> float:
    """The mean over newcomers after so many epochs, each counted by its samples."""
    known = [
        (r.accuracy, r.samples)
        for r in joined.rows
        if r.epochs == epochs and r.shots is None and r.accuracy is not None
    ]
    accuracy, samples = np.array(known).T
    return 100 * float(accuracy @ samples / samples.sum())


def target_of(setting: str) -> float:
    """The target that a setting names.

    >>> target_of("label skew 20%;target 75%")
    0.75
    """
    found = re.search(r"target (\d+(?:\.\d+)?)%", setting)
    assert found, f"{setting} names no target"
    return float(found[1]) / 100


def rounds_to_target(cell: Cell, setting: str) -> float | None:
    """The first round whose mean accuracy reaches the target of the setting; None if none does."""
    rounds = curve(cell)
    hit = metrics.rounds_to_target(list(rounds.values()), target_of(setting))
    return None if hit is None else float(list(rounds)[hit - 1])


def rounds_drawn_to_target(cell: Cell, setting: str) -> float | None:
    """The first round in which the clients' own networks would reach the target in the mean.

    Who was drawn counts with what its local epochs make of the last model (evaluate.tuned), who was
    not yet with the untrained one: as if trained networks were as good in every round.
    """
    rows = cell.history.rows
    own = {r.client: r.value for r in rows if r.client and (r.stage, r.metric) == TUNED}
    first = cell.history.clients(0, stage=cell.stage) or dict.fromkeys(own, 0.0)
    up = [r for r in rows if r.client in own and (r.stage, r.metric) == ("traffic", "bytes_up")]
    drawn = {r.client: r.round for r in reversed(up) if r.round > 0 and r.value > 0}
    for t in range(1, int(cell.summary["rounds"]) + 1):
        reached = [own[c] if drawn.get(c, t + 1) <= t else first.get(c, 0.0) for c in own]
        if reached and np.mean(reached) >= target_of(setting):
            return float(t)
    return None


def megabits_to_target(cell: Cell, setting: str) -> float | None:
    """Megabits that an average client has moved, both ways, when the target is reached."""
    hit = rounds_to_target(cell, setting)
    if hit is None:
        return None
    moved = sum(cell.history.total(w, until=int(hit)) for w in ("bytes_down", "bytes_up"))
    return 8 * moved / int(cell.summary["clients"]) / 1e6


def clusters(cell: Cell, setting: str) -> float | None:
    """How many clusters there are at the end."""
    return found_clusters(cell, "clusters")


def correct(cell: Cell, setting: str) -> float | None:
    """Clients in the right cluster at the end, under the best one-to-one matching."""
    return found_clusters(cell, "clusters_correct")


def found_clusters(cell: Cell, metric: str) -> float | None:
    """A number of the clusters at the end; None for a method without any."""
    value = cell.summary["clusters"].get(metric)
    return None if value is None else float(value)


def members(group: int) -> Measure:
    """Clients of a planted group that are in the cluster which stands for it."""

    def measure(cell: Cell, setting: str) -> float | None:
        found = cell.clusters
        if found.group is None:
            return None
        truth, ours = found.group[-1], found.assign[-1]
        table = metrics.contingency(truth, ours)
        of, by = metrics.best_pairs(table)
        at = [i for i, g in enumerate(np.unique(truth)) if g == group]
        return float(table[of, by][np.isin(of, at)].sum())

    return measure


def by_shots(cell: Cell, setting: str) -> float | None:
    """Accuracy on the classes that a client has few, medium or many samples of; else on all."""
    which = setting.rsplit(";", 1)[-1].split()[0].lower()
    found = cell.summary.get("by_shots")
    if which == "avg" or found is None:
        return last(10)(cell, setting) if which == "avg" else None
    return 100 * float(found[which]) if which in found else None


def of_size(cell: Cell, setting: str) -> float | None:
    """Mean accuracy of the clients whose number of samples is nearest to the setting's; or of all.

    Samples of a client are those that it trains on.
    """
    wanted, sizes = re.search(r"with (\d+) samples", setting), cell.facts.get("sizes")
    if not wanted or sizes is None:
        return None if wanted else final(cell, setting)
    away = {name: abs(sizes[name] - int(wanted[1])) for name in cell.accuracy}
    near = [cell.accuracy[name] for name, gap in away.items() if gap == min(away.values())]
    return 100 * float(np.mean(near))


def clustering_rounds(cell: Cell, setting: str) -> float:
    """The round after which nobody changed its cluster."""
    return float(cell.clusters.settled)


TUNED = ("tuned", "accuracy")
# What some measures rest on: a run with another value of it than the table's file cannot tell them.
_ROUNDS = ("evaluate.every", "evaluate.first")
RESTS_ON = {
    "rounds_to_target": _ROUNDS,
    "megabits_to_target": _ROUNDS,
    "tuned": ("evaluate.tuned",),
    "rounds_drawn_to_target": ("evaluate.tuned",),
}
MEASURES: dict[str, Measure] = {
    "final": final,
    "tuned": tuned,
    "last_10": last(10),
    "last_20": last(20),
    "top5_weighted": top5_weighted,
    "bottom5_in_top5": bottom5_in_top5,
    "newcomers_given": newcomers_given,
    "newcomers_adapted": newcomers_adapted,
    "rounds_to_target": rounds_to_target,
    "rounds_drawn_to_target": rounds_drawn_to_target,
    "megabits_to_target": megabits_to_target,
    "clusters": clusters,
    "correct": correct,
    "clustering_rounds": clustering_rounds,
    "by_shots": by_shots,
    "of_size": of_size,
    **{f"members_{i + 1}": members(i) for i in range(4)},
}
