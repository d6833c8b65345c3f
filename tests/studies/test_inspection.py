"""The view before clustering: the very numbers that CFLGT and FedClust would see."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

import coterie
from coterie.cli.inspecting import advice
from coterie.cli.main import call
from coterie.core.layout import Layout
from coterie.core.loop import run
from coterie.data.population import Population, partition
from coterie.engines.front import Front
from coterie.methods.cflgt import CFLGT
from coterie.methods.fedclust import FedClust
from coterie.studies.insight.inspection import Inspection, inspect
from coterie.tasks.solver import Solver
from coterie.words import grouping
from coterie.words.distance import l2
from tests import tiny

SOLVER = Solver(lr=0.1, batch=8)


def small(n: int = 8) -> Population:
    return Population.of(tiny.clients(n), tiny.CLASSES, group=[i * 2 // n for i in range(n)])


@cache
def seen(measure: str = "update_cosine") -> Inspection:
    return inspect(
        small(),
        tiny.network(),
        rounds=2,
        seed=7,
        solver=SOLVER,
        distance=measure,  # type: ignore[arg-type]
        method=FedClust(warmup_epochs=2),
    )


def federation() -> Front:
    return Front(small(), Layout(tiny.network()), classes=tiny.CLASSES, seed=7)


@pytest.mark.parametrize("measure", ["update_cosine", "l2"])
def test_distances_are_those_that_fedclust_cuts(measure: str) -> None:
    clust = FedClust(solver=SOLVER, warmup_epochs=2, distance=measure)  # type: ignore[arg-type]
    state = clust.init(federation().at(-1))
    assert torch.equal(seen(measure).distance, state.memory["distance"])
    assert torch.equal(seen(measure).cut.labels, state.assign)


def test_l2_is_equation_3() -> None:
    assert not torch.equal(seen("l2").distance, seen().distance)
    clust = FedClust(solver=SOLVER, warmup_epochs=2, threshold=1.0)
    fed = federation()
    start = coterie.State.shared(fed.layout.initial, 8)
    theta = fed.at(-1).ask(fed.clients, clust.warm(fed.sizes), start)
    assert torch.equal(seen("l2").distance, l2(theta.values))


def test_trajectories_are_those_that_cflgt_clusters() -> None:
    *_, state = run(CFLGT(solver=SOLVER, pretrain=2), federation(), 3)
    assert torch.equal(seen().trajectories, state.memory["trajectories"])


@pytest.mark.parametrize(("shift", "expected"), [(-1e-9, 1), (1e-9, 2)])
def test_cflgt_s_guard_has_the_same_hopkins(shift: float, expected: int) -> None:
    """With the limit just below the value shown it clusters, just above it does not."""
    limit = seen().hopkins - shift
    guarded = CFLGT(solver=SOLVER, pretrain=2, hopkins=limit, silhouette=0.0)
    *_, state = run(guarded, federation(), 3)
    assert min(state.k, 2) == expected


def test_the_curve_is_what_each_threshold_gives() -> None:
    found = seen().curve
    for threshold, k in zip(found.threshold.tolist(), found.k.tolist(), strict=True):
        assert int(grouping.cut(seen().distance, threshold).max()) + 1 == k


def test_planted_groups_are_found_and_said() -> None:
    assert seen().cut.k == 2
    assert "finds 2 clusters" in seen().verdict
    assert seen().verdict.endswith("8 of 8 clients as planted")


@pytest.mark.parametrize("hopkins", [0.3, 0.7499, 0.75, 0.99])
@pytest.mark.parametrize("k", [1, 2])
def test_one_judgement_decides_verdict_facts_and_advice(k: int, hopkins: float) -> None:
    """What the cut finds is never contradicted by the number of the trajectories."""
    one = replace(seen().cut, labels=torch.zeros(8, dtype=torch.long), k=1)
    found = replace(seen(), hopkins=hopkins, cut=seen().cut if k == 2 else one)
    number, judged = found.verdict.splitlines()
    assert number.startswith(f"trajectories: Hopkins {hopkins:.2f}")
    assert "cluster" not in number
    assert f"finds {'2 clusters' if k == 2 else 'one cluster'} (" in judged
    assert found.clustered == found.facts()["clustered"] == (k == 2)
    assert advice(found, "digits", [], {}).endswith("fedclust" if k == 2 else "fedavg")


def test_looking_changes_nothing() -> None:
    net, clients, noise = tiny.network(), small(), torch.get_rng_state()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    x = [c.x.clone() for c in clients]
    inspect(clients, net, rounds=1, solver=SOLVER, method=FedClust(warmup_epochs=1))
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert all(torch.equal(a, c.x) and not c.memory for a, c in zip(x, clients, strict=True))
    assert torch.equal(noise, torch.get_rng_state())


@pytest.mark.parametrize("n", [1, 2])
def test_few_clients_are_one_cluster(n: int) -> None:
    found = inspect(small(n), tiny.network(), solver=SOLVER, method=FedClust(warmup_epochs=1))
    assert found.cut.k == 1
    assert "one cluster" in found.verdict


def test_a_client_without_finite_numbers_is_named() -> None:
    huge = tiny.client(3, 8)
    clients = Population.of(
        [*tiny.clients(3), replace(huge, x=1e20 * huge.x, name="broken")], tiny.CLASSES
    )
    found = inspect(clients, tiny.network(), rounds=0, solver=SOLVER)
    assert (found.names, found.missing) == (("0", "1", "2"), ("broken",))


def test_the_name_is_at_the_top() -> None:
    found = coterie.inspect(partition("digits", "iid", clients=3), "mclr", rounds=0)
    assert isinstance(found, coterie.Inspection)
    assert found.trajectories.shape == (3, 2, 10)


@pytest.fixture
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


DIGITS = ["--partition", "rotation:0,180", "--clients", "4", "--model", "mclr"]


@pytest.mark.usefixtures("_folder")
def test_the_command_gives_every_number_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["inspect", "digits", *DIGITS, "--rounds", "0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["groups"] == [0, 0, 1, 1]
    assert found["rounds"] == 0
    assert {len(t["pull"]) for t in found["trajectories"].values()} == {10}
    assert found["curve"][-1]["clusters"] == 1
    assert found["cut"].keys() == {"threshold", "clusters", "ratio", "silhouette", "labels"}


@pytest.mark.usefixtures("_folder")
def test_the_command_shows_the_curve_and_what_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["inspect", "digits", *DIGITS, "--plot", "new/p.html"]) == 0
    said = capsys.readouterr()
    assert said.out.count("automatic") == 2, "in the table and in the verdict"
    assert "coefficient of variation: pull" in said.out
    assert said.err.splitlines()[-1].startswith("next    coterie run --data digits ")
    page = Path("new/p.html").read_text()
    assert "group 1" in page
    assert 'src="http' not in page, "it must open without a network"


@pytest.mark.usefixtures("_folder")
def test_a_file_and_its_run_are_the_same_federation(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my.toml").write_text(
        'method = "fedclust"\n[partition]\nkind = "rotation"\nclients = 4\n'
        '[model]\nname = "mclr"\n[train]\nrounds = 1\n[fedclust]\nwarmup_epochs = 1\n'
    )
    assert call(["run", "my.toml", "--out", "r", "--quiet"]) == 0
    capsys.readouterr()
    texts = []
    for what in ("my.toml", "r"):
        assert call(["inspect", what, "--rounds", "0", "--json"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert json.loads(texts[0])["cut"]["labels"] == list(coterie.open_run("r").clusters.values())


def test_what_a_files_own_threshold_gives_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "e.toml"
    small = 'method = "fedclust"\n[data]\nsource = "synthetic"\n[data.options]\nsamples = 200\n'
    for own, clusters in (("threshold = 1e9", 1), ("clusters = 3", 3), ("threshold = 1e-9", 4)):
        rest = "[partition]\nclients = 4\n[model]\nname = 'mclr'\n[train]\nlocal_epochs = 1\n"
        file.write_text(f"{small}{rest}[fedclust]\n{own}\n")
        assert call(["inspect", str(file), "--rounds", "0", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["asked"]["clusters"] == clusters
        assert found["distance"] == ("l2" if "threshold" in own else "update_cosine")
