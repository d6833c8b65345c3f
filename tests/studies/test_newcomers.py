"""Clients held out: never seen in training, joining by what the method does, recorded."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from coterie import config as configs
from coterie.config import ProblemsError
from coterie.core.errors import DataError
from coterie.data.population import Population, partition
from coterie.methods.fedclust import FedClust
from coterie.runs.newcomers import Joined, read
from coterie.studies.finished.newcomers import few, hold_out, join
from coterie.studies.finished.opening import open_run
from coterie.studies.run import experiment
from coterie.studies.run.result import Result
from coterie.studies.run.training import fit
from coterie.tasks.solver import Solver

HOW: list[tuple[str, Any]] = [
    ("method", "fedclust"),
    ("partition.kind", "rotation"),
    ("partition.clients", 8),
    ("model.name", "mclr"),
    ("fedclust.warmup_epochs", 1),
    ("train.rounds", 2),
    ("newcomers.share", 0.25),
    ("newcomers.epochs", 2),
    ("newcomers.shots", (1,)),
]


@cache
def people() -> Population:
    return partition("digits", "rotation", clients=12)


@cache
def trained() -> tuple[Result, Joined]:
    rest, new = hold_out(people(), 0.3, seed=1)
    method = FedClust(Solver(lr=0.05, batch=16), fraction=1.0, warmup_epochs=3, clusters=4)
    result = fit(method, rest, "mclr", rounds=2)
    groups = people().group
    assert groups is not None
    found = join(result, [people()[i] for i in new], groups[new].tolist(), epochs=2, shots=(2,))
    return result, found


def test_those_held_out_share_no_sample_with_those_who_train() -> None:
    rest, new = hold_out(people(), 0.3, seed=1)
    assert (len(rest), len(new)) == (8, 4)
    seen = set(torch.cat([*rest.partition.train, *rest.partition.test]).tolist())
    for i in new:
        own = torch.cat([people().partition.train[i], people().partition.test[i]])
        assert not seen & set(own.tolist())
        assert people().names[i] not in rest.names


def test_those_who_stay_keep_their_names_samples_and_groups() -> None:
    rest, _ = hold_out(people(), 0.3, seed=1)
    for j, name in enumerate(rest.names):
        i = people().names.index(name)
        assert torch.equal(rest[j].x, people()[i].x)
        assert rest.group is not None
        assert people().group is not None
        assert rest.group[j] == people().group[i]  # type: ignore[index]


def test_who_is_held_out_follows_from_the_seed_and_the_key_from_who_is() -> None:
    draws = [hold_out(people(), 0.3, seed) for seed in (1, 1, 2)]
    assert draws[0][1] == draws[1][1] != draws[2][1]
    keys = [rest.key for rest, _ in draws]
    assert keys[0] == keys[1] != keys[2]
    assert people().key not in keys


@pytest.mark.parametrize(("share", "count"), [(0.01, 1), (0.5, 6), (0.99, 11)])
def test_somebody_joins_and_somebody_trains(share: float, count: int) -> None:
    assert len(hold_out(people(), share, 0)[1]) == count


def test_one_client_alone_has_no_newcomers() -> None:
    with pytest.raises(DataError):
        hold_out(partition("digits", clients=1), 0.5, 0)


def test_every_epoch_is_that_of_placing_for_so_long() -> None:
    result, found = trained()
    client = people()[people().names.index(found.newcomers[0])]
    for epochs in (0, 1, 2):
        alone = result.place(client, epochs)
        row = next(r for r in found.rows if r.newcomer == client.name and r.epochs == epochs)
        assert row.accuracy == alone.after[client.name]
        assert row.bytes_down == alone.bytes_down[client.name]


def test_newcomers_find_the_clusters_of_their_groups() -> None:
    result, found = trained()
    assert len(set(result.clusters.values())) > 1
    for row in found.rows:
        peers = [
            int(g)
            for name, g in zip(result.population.names, result.population.group, strict=True)  # type: ignore[arg-type]
            if result.clusters[name] == row.cluster
        ]
        assert row.right == (max(set(peers), key=peers.count) == row.group)
    assert found.assigned() == 1.0


def test_nobody_of_its_group_no_right_cluster() -> None:
    result, found = trained()
    client = people()[people().names.index(found.newcomers[0])]
    (row,) = join(result, [client], [9], epochs=0).rows
    assert row.right is None


def test_shots_are_so_many_of_each_class_and_leave_the_test_alone() -> None:
    client = people()[3]
    small = few(client, 2, seed=0)
    assert small.y.bincount().max() == 2
    assert set(small.y.tolist()) == set(client.y.tolist())
    assert small.x_test is client.x_test
    rows = [r for r in trained()[1].rows if r.shots == 2]
    assert {r.epochs for r in rows} == {0, 2}
    assert all(r.samples <= 20 for r in rows)


def test_a_run_records_them_and_its_resume_comes_to_the_same(tmp_path: Path) -> None:
    config = configs.load(None, HOW)
    experiment.execute(config, tmp_path / "whole")
    found = read(tmp_path / "whole")
    assert found is not None
    assert (len(found.newcomers), found.epochs, found.shots) == (2, 2, [None, 1])

    class Stop(BaseException):
        pass

    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == 1:
            raise Stop

    with pytest.raises(Stop):
        experiment.execute(config, tmp_path / "parts", stop)
    assert read(tmp_path / "parts") is None
    experiment.resume(tmp_path / "parts")
    for name in ("newcomers.csv", "metrics.csv"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    trained = (tmp_path / "whole/metrics.csv").read_text().splitlines()
    assert not {line.split(",")[1] for line in trained} & set(found.newcomers)


def test_an_opened_run_does_not_know_them(tmp_path: Path) -> None:
    result = experiment.execute(configs.load(None, HOW), tmp_path / "r")
    assert open_run(tmp_path / "r").population.names == result.population.names


def test_drift_and_newcomers_do_not_go_together() -> None:
    with pytest.raises(ProblemsError, match="not with drift"):
        configs.load(None, [("partition.kind", "rotation+drift"), ("newcomers.share", 0.2)])
