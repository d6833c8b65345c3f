"""Audits of a run or of an experiment file, and how they are written down."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from coterie.audit.findings import Audit
from coterie.config import Config
from coterie.core import storage
from coterie.report.audited import write_audit
from coterie.runs.history import csv_lines
from coterie.runs.reading import RunReader, round_events
from coterie.studies.audits.auditing import CLIENTS, ROUNDS, Auditor
from coterie.studies.audits.watching import from_events
from coterie.studies.finished.opening import open_run
from coterie.studies.run import experiment, private

Tell = Callable[[str], object]


def audit_run(
    folder: Path,
    *,
    rounds: int = 0,
    clients: int = CLIENTS,
    seed: int | None = None,
    allow_code: bool = False,
) -> list[Audit]:
    """The audit of a run: what it sent by its records, attacked as its own rounds send it.

    As many rounds are played as it took until each task was asked once, but at most `rounds`.
    """
    result = open_run(folder, allow_code=allow_code)
    seen = from_events(round_events(RunReader(folder).events))
    needed = max((traffic.first for traffic in seen.values()), default=1)
    name = type(result.method).__name__.lower()
    where = {"seed": result.fed.seed if seed is None else seed, "clients": clients}
    auditor = Auditor(result.population, result.fed.layout, **where)
    found = auditor.audit(
        result.method,
        name,
        rounds=min(max(needed, 1), rounds or ROUNDS),
        planned=result.summary.get("rounds", result.state.round) or 1,
        end=result.state,
        memories=result.fed.memories(),
        traffic=seen,
    )
    return [found]


def audit_file(
    config: Config,
    methods: Sequence[Config],
    *,
    rounds: int = 0,
    clients: int = CLIENTS,
    tell: Tell = lambda text: None,
) -> list[Audit]:
    """The audits of the methods of an experiment, on the same clients and network."""
    torch.set_num_threads(config.engine.threads)
    people = experiment.population(config)
    config = experiment.with_network(config, people.shape)
    layout = experiment.network(config, people.shape, people.classes)
    tell("controls")
    auditor = Auditor(people, layout, seed=config.seed, clients=clients)
    found = []
    for asked in methods:
        tell(asked.method)
        one = private.with_noise(asked, experiment.method, people.sizes)
        planned = one.train.rounds
        found.append(
            auditor.audit(
                experiment.method(one),
                one.method,
                rounds=min(planned, rounds or ROUNDS),
                planned=planned,
            )
        )
    return found


def write(folder: Path, audits: Sequence[Audit], title: str, command: str) -> list[Path]:
    """audit.html, audit.json and audit.csv in a folder; no sample is in the latter two."""
    storage.make_folder(folder)
    page = write_audit(folder / "audit.html", audits, title, command)
    data = folder / "audit.json"
    text = json.dumps([facts(audit) for audit in audits], indent=1, allow_nan=False)
    storage.replace_file(data, f"{text}\n".encode())
    table = folder / "audit.csv"
    storage.replace_file(table, csv_lines(lines(audits)).encode())
    return [page, data, table]


def facts(audit: Audit) -> dict[str, Any]:
    """An audit as plain values, without the samples that it rebuilt."""
    bare = replace(audit, rebuilt=())
    found = asdict(bare)
    found["rebuilt"] = [
        {
            key: None if value != value else value
            for key, value in vars(r).items()
            if key not in ("original", "guess", "low", "high")
        }
        for r in audit.rebuilt
    ]
    found["members"] = [
        {"whose": m.whose, "source": m.source, **m.area._asdict(), "verdict": m.verdict}
        for m in audit.members
    ]
    return found | {"sound": audit.sound, "sentence": audit.sentence}


def lines(audits: Sequence[Audit]) -> list[tuple[str, ...]]:
    """A line for each finding: method, what was attacked, how, and what came of it."""
    head = ("method", "attack", "from", "setting", "measure", "value", "reference", "verdict")
    found: list[tuple[str, ...]] = [head]
    for a in audits:
        for r in a.rebuilt:
            how = (a.method, r.attack, r.source, r.setting, "psnr_db")
            found.append((*how, f"{r.psnr:.2f}", f"{r.blind:.2f}", r.verdict))
        for told in a.labels:
            how = (a.method, "labels", told.source, told.setting, "labels_right")
            found.append((*how, f"{told.overlap:.4f}", f"{told.blind:.4f}", told.verdict))
        for m in a.members:
            how = (a.method, "membership", m.source, m.whose, "auc")
            found.append((*how, f"{m.area.auc:.4f}", "0.5", m.verdict))
        for c in a.controls:
            how = (a.method, c.attack, c.name, f"must {c.must}", c.unit)
            found.append((*how, f"{c.value:.4f}", c.limit, "passed" if c.passed else "failed"))
    return found
