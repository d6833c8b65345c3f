"""A file or a run's folder from elsewhere runs no code by being read, checked or shown."""

from __future__ import annotations

from pathlib import Path

import pytest

import coterie as ct
from coterie.config import ProblemsError, load
from coterie.config.grid import grid
from tests.cli.test_cli import call

SMALL = ["partition.clients=3", "train.rounds=1", "engine.name=serial"]
OWN = """
from pathlib import Path
import coterie as ct
Path(__file__).with_name("canary").touch()

class Mine(ct.FedAvg):
    pass

def net(shape, classes):
    import torch
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, classes))
"""


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that leaves a trace when it is imported, and where."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "evil", raising=False)
    (tmp_path / "evil.py").write_text(OWN)
    return tmp_path / "canary"


def shell(canary: Path) -> str:
    """An experiment whose network would be a command of the shell."""
    return f'[model]\nname = "os:system"\n[model.options]\ncommand = "touch {canary}"\n'


FILES = {"a method": 'method = "evil:Mine"\n', "a network": '[model]\nname = "evil:net"\n'}


@pytest.mark.parametrize("command", ["check", "run", "inspect", "newcomers"])
@pytest.mark.parametrize("what", ["a method", "a network", "the shell"])
@pytest.mark.row(27, counts="hostile files and names")
def test_a_file_runs_nothing(
    command: str, what: str, canary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = FILES.get(what) or shell(canary)
    Path("e.toml").write_text(text)
    assert call([command, "e.toml", *SMALL]) == 2
    assert "--allow-code" in capsys.readouterr().err
    assert not canary.exists()


@pytest.mark.parametrize("command", ["report", "place", "resume", "inspect"])
@pytest.mark.row(27, counts="hostile files and names")
def test_a_received_run_runs_nothing(command: str, canary: Path) -> None:
    assert call(["run", *SMALL, "model.name=mclr", "--out", "r", "--no-report"]) == 0
    file = Path("r/run.toml")
    model = shell(canary).removeprefix("[model]\n")
    file.write_text(file.read_text().replace('name = "mclr"', model))
    more = ["--data", "digits"] if command == "place" else []
    assert call([command, "r", *more]) == (0 if command == "report" else 2)
    assert not canary.exists()
    with pytest.raises(ProblemsError, match="allow-code"):
        ct.open_run("r")
    assert not canary.exists()


@pytest.mark.row(27, counts="hostile files and names")
def test_a_list_of_methods_in_a_file_runs_nothing(canary: Path) -> None:
    Path("e.toml").write_text('method = ["fedavg", "evil:Mine"]\n')
    with pytest.raises(ProblemsError, match="allow-code"):
        grid("e.toml")
    assert not canary.exists()


def test_what_a_person_types_is_meant(canary: Path) -> None:
    assert load(settings=[("method", "evil:Mine")]).method == "evil:Mine"
    assert canary.exists()
    assert list(grid(methods=["fedavg", "evil:Mine"]).experiments) == ["fedavg", "evil:Mine"]


@pytest.mark.parametrize("what", list(FILES))
def test_code_that_is_allowed_is_used(what: str, canary: Path) -> None:
    Path("e.toml").write_text(FILES[what])
    assert call(["run", "e.toml", *SMALL, "--allow-code", "--out", "r", "--no-report"]) == 0
    assert canary.exists()
    assert call(["resume", "r", "--rounds", "2", "--no-report"]) == 2
    assert call(["resume", "r", "--rounds", "2", "--no-report", "--allow-code"]) == 0
    assert ct.open_run("r", allow_code=True).state.round == 2


def test_a_comparison_goes_on_with_code_that_was_typed(canary: Path) -> None:
    words = ["compare", *SMALL, "--methods", "fedavg,evil:Mine", "--seeds", "1", "--out", "c"]
    assert call(words) == 0
    for done in Path("c").glob("*/cell.json"):
        done.unlink()  # as if each had been stopped before its end
    assert call(words) == 0


def test_a_typed_name_that_cannot_be_imported_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", "method=no.such.package:Method"]) == 2
    assert "cannot be imported" in capsys.readouterr().err
