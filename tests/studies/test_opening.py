"""A run opens from its folder alone: without its data, without the program that started it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import coterie as ct
from coterie.core.errors import CheckpointError, ConfigError, DataError
from coterie.methods import METHODS, written
from coterie.runs.model import RunModel
from coterie.studies.finished.opened import OpenedPopulation
from tests.cli.test_cli import call
from tests.studies.test_federation import Server
from tests.test_contract import ALL, method

SMALL = ["partition.clients=4", "train.rounds=2", "engine.name=serial", "model.name=mclr"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def photos(to: str = "photos.npz") -> str:
    """A file of the digits, as somebody's own data."""
    digits = ct.load("digits")
    names = np.array([f"number {c}" for c in digits.classes])
    np.savez(to, x=digits.x.numpy(), y=digits.y.numpy(), classes=names)
    return to


def run(*words: str) -> None:
    assert call(["run", *SMALL, *words, "--out", "r", "--no-report"]) == 0


def logits(net: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return net(x)


def test_a_run_opens_without_its_data_and_asks_for_them_when_it_needs_them() -> None:
    run("--data", photos(), "--method", "fedclust", "fedclust.clusters=2")
    before = ct.open_run("r")
    x = before.population[0].x
    Path("photos.npz").rename("moved.npz")
    result = ct.open_run("r")
    assert result.clusters == before.clusters
    assert result.summary == before.summary
    assert result.population.class_names[0] == "number 0"
    assert torch.equal(logits(result.model(3), x), logits(before.model(3), x))
    with pytest.raises(DataError, match="not at hand") as error:
        result.population[0]
    assert (error.value.code, "photos.npz" in error.value.where) == ("D048", True)
    newcomer = before.population[1]
    assert result.place((newcomer.x, newcomer.y)).clusters.keys() == {"newcomer-0"}
    assert "data of this run are not at hand" in result.report("page.html").read_text()
    again = ct.open_run("r", population=before.population.real)  # type: ignore[attr-defined]
    assert torch.equal(again.population[0].x, x)


def test_other_data_than_the_runs_are_refused_when_they_are_asked_for() -> None:
    run("--data", photos())
    with np.load("photos.npz") as data:
        other = dict(data)
    other["x"] = other["x"][::-1]
    np.savez("photos.npz", **other)
    result = ct.open_run("r")
    with pytest.raises(CheckpointError) as error:
        result.population[0]
    assert error.value.code == "K008"
    with pytest.raises(CheckpointError):
        ct.open_run("r", population=ct.partition("digits", clients=4, seed=1))


def test_opening_reads_no_data() -> None:
    run("--method", "ditto")
    result = ct.open_run("r")
    result.model(1)
    result.model(cluster=0)
    result.save("m.safetensors", 2)
    assert isinstance(result.population, OpenedPopulation)
    assert "real" not in vars(result.population)
    assert torch.equal(result.population.label_counts().sum(1).double(), result.population.sizes)
    assert "real" in vars(result.population)


def test_a_run_of_an_earlier_version_opens_as_it_did() -> None:
    run()
    Path("r/model.json").unlink()
    old, new = ct.open_run("r"), ct.open_run("r")
    assert torch.equal(old.fed.layout.initial, new.fed.layout.initial)
    assert old.population.scaling["how"] == "standard"
    assert RunModel.load(Path("r")) is None
    assert call(["resume", "r", "--rounds", "3", "--no-report"]) == 0
    assert RunModel.load(Path("r")) is not None


def test_scaling_is_kept_with_its_numbers() -> None:
    run("--data", photos())
    numbers = json.loads(Path("r/model.json").read_text())["spec"]["scaling"]
    digits = ct.load("digits")
    assert numbers["peak"] == 255
    assert numbers["mean"][0][0][0] == pytest.approx(float(digits.x.float().mean() / 255))
    assert numbers["std"][0][0][0] == pytest.approx(float((digits.x / 255).std(correction=0)))


def test_drift_is_known_without_the_data() -> None:
    run("--data", photos(), "partition.kind=rotation+drift:1")
    known = ct.open_run("r")
    groups = [known.population.real.at(t).group for t in (0, 2)]  # type: ignore[attr-defined]
    sizes = [known.population.real.at(t).sizes for t in (0, 2)]  # type: ignore[attr-defined]
    Path("photos.npz").unlink()
    result = ct.open_run("r")
    for i, t in enumerate((0, 2)):
        assert torch.equal(result.population.at(t).group, groups[i])
        assert torch.equal(result.population.at(t).sizes, sizes[i])
    assert result.summary["clusters"] == known.summary["clusters"]


def test_a_model_that_is_adapted_to_data_that_are_gone_says_so() -> None:
    run("--data", photos(), "--method", "kin")
    Path("photos.npz").unlink()
    result = ct.open_run("r")
    with pytest.raises(DataError, match="adapted to its data") as error:
        result.model(2)
    assert "cluster 0" in error.value.fix
    result.model(cluster=0)


# -- from Python ----------------------------------------------------------------------------------


class Twisted(nn.Module):
    """A network that no straight line of layers is."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(64, 6), nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x.flatten(1)).tanh())


def twisted(shape: tuple[int, ...], classes: int) -> nn.Module:
    return Twisted()


def fitted(model: Any = "cnn-s", clients: Any = None, how: Any = None) -> ct.Result:
    clients = clients or ct.partition("digits", "rotation:0,180", clients=4)
    return ct.fit(how or ct.Kin(), clients, model, rounds=1, out="r", engine="serial", page=False)


def same(result: ct.Result, other: ct.Result) -> None:
    assert result.clusters == other.clusters
    assert result.summary == other.summary
    assert repr(result.method) == repr(other.method)
    assert torch.equal(result.fed.layout.initial, other.fed.layout.initial)
    x = other.population[0].x
    assert torch.equal(logits(result.model(2), x), logits(other.model(2), x))


def test_a_run_from_python_opens_with_its_data_and_network_by_name() -> None:
    result, opened = fitted(), ct.open_run("r")
    same(opened, result)
    assert torch.equal(opened.population[1].x, result.population[1].x)
    assert opened.insight is not None
    newcomer = result.population[3]
    placed = [r.place((newcomer.x, newcomer.y)).clusters for r in (result, opened)]
    assert placed[0] == placed[1]


def test_layers_given_in_python_need_not_be_given_again() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
    net[1].bias.requires_grad_(False)  # the row holds it behind what learns
    result = fitted(net)
    same(ct.open_run("r"), result)


def test_a_factory_from_python_opens_with_code_allowed() -> None:
    result = fitted(twisted)
    with pytest.raises(ConfigError, match="not coterie's") as error:
        ct.open_run("r")
    assert "allow_code=True" in error.value.fix
    same(ct.open_run("r", allow_code=True), result)


def test_a_module_from_python_is_given_again() -> None:
    result = fitted(Twisted())
    with pytest.raises(ConfigError, match="has no name") as error:
        ct.open_run("r")
    assert "open_run(folder, model=net)" in error.value.fix
    same(ct.open_run("r", model=Twisted()), result)  # its own first numbers are the run's
    with pytest.raises(CheckpointError) as other:
        ct.open_run("r", model=nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
    assert other.value.code == "K016"


def test_clients_from_python_are_given_again_where_their_data_are_needed() -> None:
    digits = ct.partition("digits", clients=3)
    own = ct.Population.of([(c.x, c.y, c.x_test, c.y_test) for c in digits], classes=10)
    result = fitted("mclr", own, ct.FedAvg())
    opened = ct.open_run("r")
    same(opened, result)
    with pytest.raises(DataError, match="not at hand") as error:
        opened.population[0]
    assert "open_run(folder, population=clients)" in error.value.fix
    assert torch.equal(ct.open_run("r", population=own).population[0].x, own[0].x)


@dataclass(frozen=True)
class Mine(ct.FedAvg):
    """A method of one's own."""


def test_a_method_of_ones_own_opens_with_code_allowed() -> None:
    result = fitted(how=Mine())
    with pytest.raises(ConfigError) as error:
        ct.open_run("r")
    assert (error.value.code, "allow_code=True" in error.value.fix) == ("C040", True)
    same(ct.open_run("r", allow_code=True), result)
    same(ct.open_run("r", method=Mine()), result)


def test_a_folder_of_python_names_no_code() -> None:
    fitted("mclr")
    file = Path("r/model.json")
    plain = json.loads(file.read_text())
    plain["python"]["method"] = {"class": "coterie.core.storage:make_folder", "path": "x"}
    file.write_text(json.dumps(plain))
    with pytest.raises(ConfigError) as error:
        ct.open_run("r")
    assert error.value.code == "C040"
    file.write_text("{")
    with pytest.raises(CheckpointError) as damaged:
        ct.open_run("r")
    assert damaged.value.code == "K002"


@ALL
def test_every_method_is_written_and_made_again(name: str) -> None:
    how = method(name)
    plain = json.loads(json.dumps(written.as_plain(how)))
    assert written.from_plain(plain) == how


def test_a_run_from_python_of_an_earlier_version_says_what_can_be_done() -> None:
    fitted("mclr")
    Path("r/model.json").unlink()
    with pytest.raises(CheckpointError) as error:
        ct.open_run("r")
    assert error.value.code == "K009"


# -- a federation ---------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


def test_a_federation_opens_with_models_clusters_and_names(server: Server) -> None:
    told = server.run()
    result = ct.open_run(server.out)
    assert result.clusters == told.clusters
    assert result.fed.names == list(told.fed.names)
    assert result.accuracy.values == told.accuracy.values
    x = torch.randn(5, 1, 8, 8)
    row = told.state.models[told.state.assign[1]]
    assert torch.equal(logits(result.model("1"), x), told.fed.layout.predict(row, x))
    with pytest.raises(ConfigError, match="keep their data on their own machines") as error:
        ct.evaluate(result.method, result.state, result.fed)
    assert error.value.code == "C056"
    assert result.insight is None


def test_a_federation_of_an_earlier_version_opens(server: Server) -> None:
    told = server.run(newcomers__share=0.3)
    (server.out / "model.json").unlink()
    result = ct.open_run(server.out)
    assert result.fed.names == list(told.fed.names)
    assert result.clusters == told.clusters


def test_a_newcomer_finds_its_place_in_a_federation(server: Server) -> None:
    server.run()
    data = ct.partition("digits", "rotation:0,180", clients=3, seed=1)
    result = ct.open_run(server.out)
    for i in (0, 1):
        placed = result.place((data[i].x, data[i].y))
        assert placed.clusters["newcomer-0"] == result.clusters[str(i)]


@pytest.mark.parametrize("name", ["ditto", "fedavg-ft"])
def test_what_a_client_keeps_to_itself_is_not_the_servers_to_give(
    name: str, server: Server
) -> None:
    assert name in METHODS
    server.file.write_text(
        server.file.read_text().replace("fedclust", name).replace("clusters = 2", "")
    )
    server.run()
    result = ct.open_run(server.out)
    with pytest.raises(ConfigError, match="is on its own machine") as error:
        result.model(0)
    assert "cluster 0" in error.value.fix
    result.model(cluster=0)
