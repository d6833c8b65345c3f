"""The folder of a run that nobody ran: a few clients, as many rounds as one likes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coterie.runs.history import HEADER, Row, csv_lines, to_csv

START: dict[str, Any] = {
    "event": "start",
    "round": 0,
    "rounds": 9,
    "clients": 4,
    "parameters": 10,
    "method": "IFCA()",
    "kind": "clustered",
}
ROUND: dict[str, Any] = {
    "event": "round",
    "round": 0,
    "rounds": 9,
    "seconds": 0.5,
    "evaluate_seconds": 0.1,
    "accuracy": 0.5,
    "worst": 0.25,
    "clusters": 2.0,
    "bytes_up": 10,
    "bytes_down": 10,
}


def begin(folder: Path) -> Path:
    """A run that has not measured anything yet."""
    folder.mkdir(parents=True)
    (folder / "run.toml").write_text('method = "ifca"\nseed = 0\n')
    (folder / "metrics.csv").write_text(HEADER)
    (folder / "clusters.csv").write_text("round,client,cluster,group\n")
    return folder


def happen(folder: Path, event: Mapping[str, Any]) -> None:
    """One more event."""
    with open(folder / "events.jsonl", "a") as file:
        file.write(json.dumps({"time": 1.0, **event}) + "\n")


def measure(folder: Path, at: int, names: Sequence[str]) -> None:
    """One more round: two clusters, accuracies that grow."""
    share = [min(1.0, 0.1 * (at + i + 1)) for i in range(len(names))]
    rows = [
        Row(at, name, str(i % 2), "before", metric, value)
        for i, name in enumerate(names)
        for metric, value in (("accuracy", share[i]), ("loss", 1 - share[i]))
    ]
    mean = sum(share) / len(share)
    rows += [Row(at, "", "", "before", m, v) for m, v in (("accuracy_mean", mean), ("loss", 1.0))]
    with open(folder / "metrics.csv", "a") as file:
        file.write(to_csv(rows))
    with open(folder / "clusters.csv", "a") as file:
        file.write(csv_lines((at, name, i % 2, "") for i, name in enumerate(names)))
    happen(folder, {**ROUND, "round": at, "accuracy": mean})
