"""What a client has and hears of a federation, and what a server says of its clients."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import coterie as ct
from coterie.cli.joining import Taking, faults
from coterie.core.events import Event, silence
from coterie.engines.flower.client import client_app
from coterie.studies.remote import federation
from coterie.studies.remote.clients import PartitionClient
from tests.engines.flower import fake
from tests.engines.flower.fake import Rig
from tests.studies.test_federation import Server

BLOCKED = """
import sys
from importlib.machinery import PathFinder
class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        gone = name.split(".")[0] in {names!r}
        return None if gone else PathFinder.find_spec(name, path, target)
sys.meta_path = [Without if f is PathFinder else f for f in sys.meta_path]
"""


@pytest.fixture
def server(tmp_path: Path) -> Server:
    made = Server(tmp_path)
    for i, owner in enumerate(made.grid.owners.values()):
        owner.model = tmp_path / f"client{i}" / "model.safetensors"
    return made


@pytest.mark.parametrize("method", ["fedclust", "ditto", "fedavg-ft", "fedrep"])
def test_a_client_keeps_the_very_model_that_it_was_tested_with(
    method: str, server: Server, tmp_path: Path
) -> None:
    result = server.run(method=method)
    for i in range(3):
        model = ct.load_model(tmp_path / f"client{i}" / "model.safetensors")
        client = PartitionClient(server.file, i).population[i]
        right = model.net(client.x_test).argmax(1) == client.y_test
        assert float(right.double().mean()) == pytest.approx(result.accuracy[i], abs=1e-6)
        assert model.about["round"] == 2


def test_a_kept_model_takes_samples_as_they_are_stored(server: Server, tmp_path: Path) -> None:
    server.run(partition__kind="iid")
    model = ct.load_model(tmp_path / "client1" / "model.safetensors")
    scaler = PartitionClient(server.file, 1).population.data.scaler
    x = ct.load("digits").x[:20]
    assert model(x).allclose(model.net(scaler(x)), atol=1e-5)


def test_the_model_of_another_run_is_kept_beside_the_new_one(server: Server) -> None:
    server.run()
    first = (server.home / "client0" / "model.safetensors").read_bytes()
    server.out = server.home / "second"
    server.run(seed=3)
    kept = sorted((server.home / "client0").glob("model*.safetensors"))
    assert len(kept) == 2
    assert first in [file.read_bytes() for file in kept]


@pytest.mark.row(11)
def test_a_disk_that_is_full_costs_no_answer(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("coterie.studies.remote.clients.save_model", full)
    told = hearing(monkeypatch)
    assert len(server.run().history.clients(2)) == 3
    for event in told:
        faults(event)
    assert "No space left on device" in capsys.readouterr().err


def hearing(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """All that the clients of fake grids hear from now on."""
    told: list[Event] = []
    heard = lambda host_of: client_app(host_of, tell=told.append)  # noqa: E731
    monkeypatch.setattr(fake, "client_app", heard)
    return told


def test_a_client_says_what_it_is_asked_how_it_does_and_when_it_is_over(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.grid.online = {100}
    told = hearing(monkeypatch)
    result = server.run(method="fedavg", partition__clients=1, partition__kind="iid")
    say = Taking()
    for event in told:
        say(event)
    lines = capsys.readouterr().err.splitlines()
    kinds = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert kinds == ["link", "test", "model", "task", "test", "task", "test", "over", "model"]
    accuracy = 100 * result.history.clients(2)["0"]
    assert lines[7] == f"test    round 2: own accuracy {accuracy:.1f} %"


def test_a_client_that_cannot_answer_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    faults({"event": "failed", "round": 2, "why": "ValueError: no"})
    assert capsys.readouterr().err == "failed  round 2: ValueError: no\n"


@pytest.mark.row(7)
def test_the_server_says_who_left_and_who_is_back(tmp_path: Path) -> None:
    rig = Rig(tmp_path, n=3)
    exchange = rig.fed.backend.exchange  # type: ignore[attr-defined]
    rig.events.clear()
    rig.grid.online.discard(101)
    exchange.look()
    exchange.look()
    assert rig.events == [{"event": "left", "client": "1"}]
    rig.grid.online.add(101)
    exchange.look()
    samples = exchange.clients["1"].samples
    back = {"event": "joined", "client": "1", "samples": samples, "again": True}
    assert rig.events[1:] == [back]
    rig.grid.came[102] = "later"  # it went and came back between two looks
    exchange.look()
    assert [e["client"] for e in rig.events[2:]] == ["2"]


def test_a_server_stands_again_where_it_stood(server: Server) -> None:
    from coterie.cli.federation import address_of

    stands = {"certs": None, "host": "127.0.0.1", "port": 4711}
    federation.run_federation(server.grid, server.config(), server.out, silence, stands=stands)
    address = address_of(None, None, None, False, server.out)
    assert (address.certs, address.port) == (None, 4711)
    assert address_of(None, None, 4712, True, server.out).port == 4712


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extra", "packages", "words"),
    [
        ("flower", {"cryptography", "flwr"}, ["certs", "c", "--clients", "2"]),
        ("flower", {"cryptography", "flwr"}, ["serve", "--insecure"]),
        ("flower", {"flwr"}, ["join", "localhost", "--insecure", "--name", "a", "--data", "x"]),
        ("ray", {"ray"}, ["run", "--engine", "ray", "--rounds", "1"]),
        ("hf", {"datasets"}, ["data", "hf:mnist"]),
        ("tensorboard", {"tensorboard"}, ["run", "--track", "tensorboard", "--rounds", "1"]),
        ("mlflow", {"mlflow"}, ["run", "--track", "mlflow", "--rounds", "1"]),
        ("wandb", {"wandb"}, ["run", "--track", "wandb", "--rounds", "1"]),
    ],
)
def test_a_missing_extra_is_named_with_the_line_that_installs_it(
    extra: str, packages: set[str], words: list[str], tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCKED.replace("{names!r}", repr(packages)))
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "coterie", *words]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode
    assert "X001" not in done.stderr
    assert f"coterie[{extra}]" in done.stderr, done.stderr
