"""Every experiment file of the papers' tables runs with all its methods: on digits, two rounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coterie.config.grid import grid
from coterie.studies.reproduction import running
from coterie.studies.reproduction.papers import TABLES

SMALL: dict[str, Any] = {
    "data.source": "digits",
    "data.pool": "train",
    "data.test": "own",
    "data.test_share": 0.3,
    "model.name": "cnn-s",
    "train.rounds": 2,
    "train.batch_size": 50,
    "evaluate.tuned": 1,
    "engine.name": "serial",
    "partition.clients": 6,
}
EPOCH = {"train.local_epochs": 1}
KIN = {"kin.warmup_epochs": 1, "kin.warmup_steps": 1, "kin.tune_epochs": 1}
BRIEF = EPOCH | KIN
SETS = {
    **BRIEF,
    "partition.sets": 3,
    "partition.labels": 2,
    "partition.samples": 8,
    "train.everybody": 1,
    "cflgt.pretrain": 1,
    "flhc.rounds_before": 0,
}
TWO = {f"{name}.clusters": 2 for name in ("flhc", "fedsem", "ifca")}
FEW: dict[str, dict[str, Any]] = {
    "autocfl-1": {**BRIEF, "partition.clients": 8, "autocfl.latest": 1, "flhc.rounds_before": 0},
    "cflgt-1": {**SETS, **TWO, "fedsem.fix_after": 1, "ifca.fix_after": 1},
    "cflgt-2": {**SETS, "partition.clients": 30, "partition.samples": 5, "model.name": "mclr"},
    "dapfl-1": BRIEF,
    "fedclust-1": {**BRIEF, "lg-fedavg.private": "conv1,conv2"},
    "fedclust-fig4": {**EPOCH, "partition.clients": 100, "model.name": "mclr", "evaluate.tuned": 0},
    "feddsmic-2": {**KIN, "partition.min_samples": 5, "train.local_steps": 2, "model.name": "mclr"},
}


@pytest.mark.slow
@pytest.mark.parametrize("file", FEW)
def test_every_method_of_a_file_runs_and_is_measured(file: str, tmp_path: Path) -> None:
    table = next(t for t in TABLES.values() if t.experiment == file)
    given = {**SMALL, **FEW[file]}
    setting = table.settings[0]
    own = {k: v for k, v in setting.given.items() if k not in given}
    asked = running.ask(table.name, tmp_path, given=given.items())
    asked = replace(asked, settings=(replace(setting, given=own),))
    failed: list[str] = []
    every = running.listed(Path(str(table.file)))

    def hear(event: dict[str, Any]) -> None:
        if event["event"] == "failed":
            failed.append(f"{event['cell']}: {event['text']}")

    running.run(asked, hear, lambda setting: every)
    assert not failed


def test_every_file_is_run_by_the_test_above() -> None:
    assert {t.experiment for t in TABLES.values() if t.experiment} == {*FEW}


def test_a_file_that_lists_methods_can_be_asked_for_a_few_of_them() -> None:
    file = Path(str(TABLES["fedclust-1"].file))
    made = grid(file, methods=["pacfl", "ifca:clusters=3"], seeds=1)
    assert [*made.experiments] == ["pacfl", "ifca:clusters=3"]
