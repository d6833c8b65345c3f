"""Reference runs: what the folders beside a run's have reached on the same clients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from coterie.report.run_data import RunData, read
from coterie.runs.reading import RunReader

REFERENCES = ("local", "fedavg")  # what a reader compares with


def with_references(run: RunData) -> RunData:
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
        if RunReader(folder).notes.get("population") == run.notes["population"]:
            yield folder
