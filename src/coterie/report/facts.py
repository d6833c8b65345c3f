"""The tables and texts of a run's page: clients, what was asked, and how to do it again."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from coterie.core.units import count, percent, size
from coterie.core.version import __version__
from coterie.methods import METHODS, Entry
from coterie.report.charts.accuracy import references
from coterie.report.charts.cost import task_words
from coterie.report.run_data import RunData
from coterie.runs.newcomers import Joined

TOLD = ("alpha", "groups", "per_client", "labels", "clusters")  # of a partition, in its words
ROWS = 2_000  # of the table of clients


class Cell(NamedTuple):
    """What a table shows, and the number it sorts by."""

    text: str
    value: float | None = None
    right: bool = False  # set to the right also without a number


class SortableTable(NamedTuple):
    """A table that sorts on a click."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


def people(run: RunData) -> SortableTable:
    """Every client: cluster, group, accuracy, gain, samples, bytes."""
    known = references(run)
    head = ["client"] + ["cluster"] * run.clustered
    head += ["planted"] * (run.group is not None) + ["samples"] * (run.insight is not None)
    head += ["accuracy", *(f"points over {name}" for name in known), "sent up", "sent down"]
    down, up = run.down.sum(0), run.up.sum(0)
    order = np.argsort(np.nan_to_num(run.final, nan=-1), kind="stable")[:ROWS]
    rows = []
    for i in sorted(order.tolist()):
        held = int(run.held[i]) if len(run.assign) else -1
        row = [Cell(run.clients[i])]
        if run.clustered:
            row.append(Cell(f"{held}" if held >= 0 else "none", held))
        if run.group is not None:
            row.append(number(float(run.planted[i]), ",.0f"))
        if run.insight is not None:
            row.append(number(float(run.insight.counts[i].sum()), ",.0f"))
        row.append(accuracy_at_the_end(run, i))
        for before in known.values():
            gain = float(run.final[i] - before[i])
            row.append(Cell("n/a" if gain != gain else f"{100 * gain:+.1f}", gain))
        row += [Cell(size(v), v) for v in (float(up[i]), float(down[i]))]
        rows.append(tuple(row))
    note = f"The {ROWS:,} worst of {run.n:,} clients." if run.n > ROWS else ""
    return SortableTable("Clients", tuple(head), tuple(rows), note)


def accuracy_at_the_end(run: RunData, i: int) -> Cell:
    """A client's last accuracy, and its round where that is not the last one."""
    table = run.accuracy.get(run.stage, np.empty((0, run.n)))
    table = table[: run.end(run.tested) + 1] if run.taken else table
    rounds = np.flatnonzero(~np.isnan(table[:, i]))
    if not len(rounds):
        return Cell(percent(np.nan), np.nan)
    value = float(table[rounds[-1], i])
    then = "" if rounds[-1] == len(table) - 1 else f" in round {run.tested[rounds[-1]]}"
    return Cell(percent(value) + then, value)


def newcomers(joined: Joined) -> SortableTable:
    """Every newcomer: its cluster, samples, accuracy as it was placed and adapted, bytes."""
    first = {r[:5]: r for r in joined.rows if r.epochs == 0}  # by name, cluster and shots
    last = {r[:5]: r for r in joined.rows if r.epochs == joined.epochs}
    planted = any(r.group is not None for r in first.values())
    few = any(r.shots is not None for r in first.values())
    head = ["newcomer", "cluster"] + ["planted"] * planted + ["a class"] * few
    head += [
        "samples",
        "accuracy as placed",
        f"after {count(joined.epochs, 'epoch')}",
        "sent up",
        "sent down",
    ]
    rows = []
    for key, r in first.items():
        row = [Cell(r.newcomer), known(r.cluster, "none")]
        row += [known(r.group, "")] * planted + [known(r.shots, "all")] * few
        row += [known(r.samples or None, "unknown")]
        row += [share(r.accuracy), share(last[key].accuracy)]
        rows.append((*row, *(Cell(size(v), v) for v in (r.bytes_up, r.bytes_down))))
    return SortableTable("Newcomers", tuple(head), tuple(rows))


def known(value: int | str | None, otherwise: str) -> Cell:
    """A cell with a whole number or a word, or with another where there is none."""
    return number(value, ",") if isinstance(value, int) else Cell(value or otherwise, -1)


def share(value: float | None) -> Cell:
    """A cell with an accuracy."""
    return Cell("n/a") if value is None else Cell(percent(value), value)


def asked(run: RunData) -> SortableTable | None:
    """What clients were asked over the whole run, task by task."""
    sums: dict[str, dict[str, float]] = {}
    for event in run.round_events.values():
        for task, cost in event.get("asked", {}).items():
            row = sums.setdefault(task_words(task), dict.fromkeys(cost, 0.0) | {"rounds": 0})
            row["rounds"] += 1
            for key, value in cost.items():
                row[key] += value
    rows = tuple(
        (
            Cell(task),
            number(s["rounds"], ",.0f"),
            number(s["clients"], ",.0f"),
            Cell(size(s["down"]), s["down"]),
            Cell(size(s["up"]), s["up"]),
            Cell(size(s["up"] / max(1, s["clients"])), s["up"] / max(1, s["clients"])),
        )
        for task, s in sums.items()
    )
    head = ("task", "rounds", "answers asked for", "down", "up", "up, each answer")
    return SortableTable("What clients were asked", head, rows) if rows else None


def noise(run: RunData) -> tuple[tuple[str, str], ...]:
    """What hides single samples in what was sent, and how well; nothing without noise."""
    if not (found := run.summary.get("privacy")):
        return ()
    told = f"at most {found['epsilon_max']:.2f}, {found['epsilon_mean']:.2f} in the mean"
    how = f"{found['noise_multiplier']:g} x {found['clip']:g} on what each sample contributes"
    return ("epsilon of a client", f"{told} (delta {found['delta']:g})"), ("noise", how)


def spent(run: RunData) -> SortableTable | None:
    """The epsilon of every client; None without noise."""
    each = run.summary.get("privacy", {}).get("epsilon", {})
    rows = tuple((Cell(name), number(value, ".2f")) for name, value in list(each.items())[:ROWS])
    return SortableTable("Privacy spent", ("client", "epsilon"), rows) if rows else None


def number(value: float, shown: str) -> Cell:
    """A cell with a number."""
    return Cell(format(value, shown), value)


def terms(config: Mapping[str, Any]) -> list[str]:
    """The data, how they are divided, and the network of an experiment, in a few words.

    >>> terms({"data": {"source": "digits"}, "partition": {"kind": "dirichlet", "alpha": 0.3}})
    ['digits', 'dirichlet (alpha 0.3)']
    """
    found = [str(config["data"].get("source", ""))] if "data" in config else []
    if isinstance(part := config.get("partition"), Mapping) and part:
        own = {k: v for k, v in part.items() if k in TOLD}
        more = ", ".join(f"{k} {v:g}" for k, v in own.items() if isinstance(v, int | float))
        found.append(str(part.get("kind", "")) + f" ({more})" * bool(more))
    model = config.get("model")
    return found + (
        [str(model.get("name", "") if isinstance(model, Mapping) else model)] if model else []
    )


def entry(run: RunData) -> Entry | None:
    """The method's row of METHODS."""
    return METHODS.get(run.method)


def versions(run: RunData) -> list[tuple[str, str]]:
    """Versions, seed and hashes."""
    notes = dict(run.notes)
    marks = {k: notes.pop(k)["sha256"] for k in ("metrics.csv", "clusters.csv") if k in notes}
    found = [("report by", f"coterie {__version__}, Python {platform.python_version()}")]
    found += [("seed", str(run.config["seed"]))] if "seed" in run.config else []
    words = {"population": "SHA-256 of the clients' data"}
    found += [(words.get(k, k), str(v)) for k, v in sorted(notes.items())]
    return found + [(f"SHA-256 of {k}", v) for k, v in marks.items()]


def bibtex(method: Entry | None) -> str:
    """How to cite the software and the method."""
    who = "{The coterie authors}"
    own = bib("software", "coterie", title="coterie", author=who, version=__version__)
    if method is None or method.paper.startswith(("ours", "the baseline")):
        return own
    return f"{own}\n\n{bib('misc', method.name, title=method.cls, note=method.paper)}"


def bib(kind: str, key: str, **fields: str) -> str:
    """One entry.

    >>> print(bib("misc", "a", title="T"))
    @misc{a,
      title = {T}
    }
    """
    lines = (f"  {k} = {{{v}}}" for k, v in fields.items())
    return f"@{kind}{{{key},\n" + ",\n".join(lines) + "\n}"
