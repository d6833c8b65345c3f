"""Clients that come while the training goes on, and drift: what is asked, recorded and resumed."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import coterie as ct
from coterie.config import load
from coterie.core.loop import evaluate, run
from coterie.engines.front import Front
from coterie.methods import METHODS
from coterie.runs.history import History, Row
from coterie.studies.run import changes, experiment
from tests.test_contract import method
from tests.tiny import clients, compiled, federation, stacked

LATE = "rotation:2+arrivals:2,0.25,2"
SOLVER = ct.Solver(lr=0.05, batch=16)


def people(kind: str) -> ct.Population:
    return ct.partition("digits", kind, clients=8, seed=1)


class Late(list[ct.Client]):
    """Small clients, of whom two come after a round and after two."""

    arrives = torch.tensor([0, 0, 1, 0, 0, 0, 2, 0])
    group = torch.arange(8) // 4

    @property
    def sizes(self) -> torch.Tensor:
        return torch.tensor([len(c) for c in self])

    def at(self, round: int) -> Late:
        return self

    def away(self, round: int) -> torch.Tensor:
        return self.arrives > max(round, 0)


@pytest.mark.parametrize("name", list(METHODS))
def test_nobody_is_asked_before_it_comes_and_everybody_holds_a_model_in_the_end(name: str) -> None:
    fed, arrives = federation(people=Late(clients())), Late.arrives
    how = method(name, fraction=1.0)
    first, *_, state = run(how, fed, 4)
    start = evaluate(how, first, fed)
    assert len(start.clients) + start.absent == 6, "who has not come is not absent"
    scores = evaluate(how, state, fed)
    for asked in fed.ledger:
        assert (arrives[asked.clients] <= max(asked.round, 0)).all(), asked.task
    assert not len(state.unplaced)
    assert scores.absent == 0


@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_until_somebody_comes_all_is_as_if_nobody_were_to(fraction: float) -> None:
    first = (Late.arrives == 0).nonzero().flatten().tolist()
    fed, few = federation(people=Late(clients())), federation(people=[clients()[i] for i in first])
    how = ct.FedAvg(SOLVER, fraction=fraction)
    ours, alone = ([*run(how, f, 1)][-1] for f in (fed, few))
    assert torch.equal(ours.models, alone.models)


@pytest.mark.parametrize("kind", [stacked, compiled])
def test_every_engine_waits_for_them(kind: Callable[..., Front]) -> None:
    how = ct.FedAvg(SOLVER)
    ours, truth = (
        [*run(how, federation(people=Late(clients()), kind=k), 3)][-1] for k in (kind, Front)
    )
    assert torch.allclose(ours.models, truth.models, atol=1e-5)


def recorded(folder: Path, kind: str, rounds: int, **more: Any) -> Path:
    how: dict[str, Any] = {
        "method": "oracle",
        "partition.kind": kind,
        "partition.clients": 8,
        "model.name": "mclr",
        "train.rounds": rounds,
        "train.local_epochs": 1,
        "seed": 1,
        "engine.name": "serial",
        **more,
    }
    experiment.execute(load(None, how.items()), folder, page=False)
    return folder


@pytest.mark.parametrize("kind", [LATE, "rotation:2+drift:1,0.5,gradual,3"])
def test_a_run_that_stopped_goes_on_to_the_same_bytes(kind: str, tmp_path: Path) -> None:
    whole, cut = recorded(tmp_path / "a", kind, 3), recorded(tmp_path / "b", kind, 2)
    experiment.resume(cut, settings=[("train.rounds", 3)], page=False)
    for name in ("metrics.csv", "clusters.csv"):
        assert (whole / name).read_bytes() == (cut / name).read_bytes()
    ends = [json.loads((f / "summary.json").read_text()) for f in (whole, cut)]
    assert ends[0]["clusters"] == ends[1]["clusters"]
    known, real = ct.open_run(whole).population, people_of(whole)
    for t in range(5):
        assert torch.equal(known.at(t).sizes, real.at(t).sizes)
        if t <= 3:
            assert torch.equal(known.at(t).group, real.at(t).group)  # type: ignore[arg-type]
    assert (known.away(1) is None) is (real.away(1) is None) is (kind != LATE)


def people_of(folder: Path) -> ct.Population:
    return experiment.population(experiment.config_of(folder))


def test_records_tell_who_came_when_and_how_far_a_drift_is(tmp_path: Path) -> None:
    kind = f"{LATE}+drift:1,0.5,gradual,2"
    folder = recorded(tmp_path / "r", kind, 4)
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    real = people(kind)
    arrives = real.arrives
    assert arrives is not None
    came = [(e["round"], e["clients"]) for e in events if e["event"] == "arrived"]
    assert came == [(t, [f"{i}" for i in range(8) if arrives[i] == t]) for t in (2, 3)]
    assert [(e["round"], e["share"]) for e in events if e["event"] == "drift"] == [(1, 0.5), (2, 1)]
    told = [e for e in events if e["event"] == "unplaced" and e["round"] < 2]
    assert not told, "who is not there is not missing a model"
    with (folder / "clusters.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        here = arrives[int(row["client"])] <= int(row["round"])
        assert bool(row["cluster"]) == bool(here), row
        truth = real.at(int(row["round"])).group
        assert truth is not None
        assert int(row["group"]) == truth[int(row["client"])]


def test_recoveries_are_counted_from_every_change_of_the_groups() -> None:
    who = people("rotation:2+drift:2,0.5,recurring,3")
    right = {0: 8, 1: 8, 2: 4, 3: 8, 4: 8, 5: 4, 6: 5, 7: 6, 8: 4, 9: 4, 10: 8}
    rows = [Row(t, "", "", "clusters", "clusters_correct", float(v)) for t, v in right.items()]
    assert who.course.turns(10) == [2, 5, 8]
    assert changes.recoveries(History(rows), who) == [1, None, 2]
