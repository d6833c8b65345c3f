"""A pickle under any name of ours is never unpickled: nothing that it would do is done."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import coterie as ct
from coterie.cli.main import call
from coterie.runs import checkpoint
from coterie.runs.model import INITIAL
from tests.faults.commands import train


class Payload:
    """Leaves a trace when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return (Path.touch, (self.canary,))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("pickle")
    train(home / "r", method="fedavg", train__rounds=1)
    return home / "r"


def kinds(canary: Path, home: Path) -> dict[str, bytes]:
    """The same payload as a plain pickle and as `torch.save` writes it."""
    torch.save({"models": Payload(canary)}, home / "saved.pt")
    return {"pickle": pickle.dumps(Payload(canary)), "torch": (home / "saved.pt").read_bytes()}


def test_the_payload_works(tmp_path: Path) -> None:
    for name, data in kinds(tmp_path / "canary", tmp_path).items():
        if name == "pickle":
            pickle.loads(data)
        else:
            torch.load(tmp_path / "saved.pt", weights_only=False)
        assert (tmp_path / "canary").exists()
        (tmp_path / "canary").unlink()


@pytest.mark.row(26, counts="hostile pickles")
@pytest.mark.parametrize("kind", ["pickle", "torch"])
def test_a_pickle_with_a_fitting_hash_in_a_checkpoint_is_not_unpickled(
    kind: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever can write the file can write its hash, too."""
    folder, canary = tmp_path / "r", tmp_path / "canary"
    shutil.copytree(whole, folder)
    data = kinds(canary, tmp_path)[kind]
    for path in checkpoint.rounds(folder / "checkpoints"):
        manifest = json.loads((path / "manifest.json").read_text())
        for name in manifest["files"]:
            (path / name).write_bytes(data)
            manifest["files"][name] = hashlib.sha256(data).hexdigest()
        manifest["sha256"] = checkpoint.seal(manifest)
        (path / "manifest.json").write_text(json.dumps(manifest))
    assert call(["resume", str(folder), "--rounds", "2"]) == 5
    assert "is damaged" in capsys.readouterr().err
    with pytest.raises(ct.CheckpointError):
        ct.open_run(folder)
    assert not canary.exists()


@pytest.mark.row(26, counts="hostile pickles")
@pytest.mark.parametrize("suffix", ["pt", "pth", "pkl", "safetensors", "bin"])
@pytest.mark.parametrize("kind", ["pickle", "torch"])
def test_a_pickle_is_no_model_under_any_name(
    kind: str, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    canary = tmp_path / "canary"
    file = tmp_path / f"model.{suffix}"
    file.write_bytes(kinds(canary, tmp_path)[kind])
    with pytest.raises(ct.CheckpointError) as error:
        ct.load_model(file)
    assert error.value.code == "K014"
    assert call(["predict", str(file), "--data", "digits"]) == 5
    assert not canary.exists()


@pytest.mark.row(26, counts="hostile pickles")
@pytest.mark.parametrize("kind", ["pickle", "torch"])
def test_a_pickle_as_initial_weights_is_not_unpickled(
    kind: str, whole: Path, tmp_path: Path
) -> None:
    folder, canary = tmp_path / "r", tmp_path / "canary"
    shutil.copytree(whole, folder)
    (folder / INITIAL).write_bytes(kinds(canary, tmp_path)[kind])
    call(["export", str(folder)])
    call(["report", str(folder)])
    assert not canary.exists()


@pytest.mark.row(26, counts="hostile pickles")
def test_nothing_in_the_library_can_unpickle_but_the_reader_of_cifar() -> None:
    """Its unpickler knows the few names that a batch needs, and is tested beside it."""
    home = Path(ct.__file__).parent
    words = (
        "pickle.load",
        "torch.load(",
        "allow_pickle=True",
        "joblib.load",
        "marshal",
        "Unpickler(",
    )
    found = {
        str(file.relative_to(home))
        for file in home.rglob("*.py")
        if any(word in file.read_text() for word in words)
    }
    assert found <= {"data/readers/cifar.py"}
