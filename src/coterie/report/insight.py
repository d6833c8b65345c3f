"""What a run's own records cannot tell and its clients' data can: labels, and models on others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coterie.core.errors import CoterieError
from coterie.report.reading import Floats, Ints, RunData, of_result, read

if TYPE_CHECKING:
    from coterie.studies.result import Result

TESTS = 2_000  # at most so many tests of one model on one client
REFERENCES = ("local", "fedavg")  # what a reader compares with


@dataclass(frozen=True)
class Insight:
    """What the data of n clients tell of a run with k clusters and C classes."""

    classes: tuple[str, ...]  # C
    counts: Ints  # (n, C) training samples of each label
    cross: Floats | None  # (k, k) mean accuracy on clients of a cluster (row) of each model
    tested: int = 0  # clients of each cluster on which every model was tested, at most


def look(folder: str | Path) -> RunData:
    """A run's folder with everything: its data are read again if they can be."""
    from coterie.studies.experiment import open_run

    run = beside(read(folder))
    try:
        return replace(run, insight=insight(run, open_run(folder)))
    except CoterieError as error:
        return replace(run, missing=error.what)


def look_at(result: Result) -> RunData:
    """The same of a result in hand."""
    run = beside(of_result(result))
    return replace(run, insight=insight(run, result))


def insight(run: RunData, result: Result) -> Insight:
    """What the clients' data tell."""
    people = result.population.at(result.state.round)
    cross, most = (None, 0) if run.personal else across(run, result)
    return Insight(people.class_names, people.label_counts().numpy(), cross, most)


def across(run: RunData, result: Result) -> tuple[Floats, int]:
    """(k, k): every cluster's model on the test samples of every cluster's clients."""
    import torch

    from coterie.tasks.score import Score

    labels = run.clusters.tolist()
    state, fed = result.state, result.fed
    each = max(1, TESTS // max(1, len(labels) ** 2))
    members = {c: (state.assign == c).nonzero().flatten()[:each] for c in labels}
    some = torch.cat(list(members.values())).sort().values
    task = Score(private=result.method.score.private)
    before = len(fed.ledger)
    table = np.full((len(labels), len(labels)), np.nan)
    for j, model in enumerate(labels):
        lent = state.reassign(some, torch.full_like(some, model))
        replies = fed.at(state.round, "evaluate").ask(some, task, lent)
        found = replies.values[:, 0, 0]
        for i, cluster in enumerate(labels):
            mine = found[torch.isin(replies.clients, members[cluster])]
            table[i, j] = float(mine[~mine.isnan()].mean())
    del fed.ledger[before:]  # a test is not traffic
    return table, each


def beside(run: RunData) -> RunData:
    """The run with the last accuracies of reference runs in the folders beside it."""
    found = {}
    for folder in neighbours(run):
        other = read(folder, memory=False)
        if other.method in REFERENCES and other.clients == run.clients and other.done:
            found[other.method] = other.final
    return replace(run, baselines={m: found[m] for m in REFERENCES if m in found})


def neighbours(run: RunData) -> Iterator[Path]:
    """The finished runs beside this one, on the same clients with the same data and seed."""
    if not run.folder or "population" not in run.notes:
        return
    for folder in sorted(run.folder.resolve().parent.iterdir()):
        if folder == run.folder.resolve() or not (folder / "summary.json").exists():
            continue
        last = max((folder / "checkpoints").glob("[0-9]*/manifest.json"), default=None)
        if last and json.loads(last.read_text())["notes"]["population"] == run.notes["population"]:
            yield folder
