"""What a page prints under "How to do it again" is typed, from another folder: the same bytes."""

from __future__ import annotations

import html
import re
import shlex
import tomllib
from pathlib import Path

import numpy as np
import pytest

from coterie.cli import main
from coterie.config.grid import grid
from coterie.core.errors import ConfigError

SMALL = ["partition.kind=rotation", "partition.clients=4", "model.name=mclr", "train.rounds=2"]


def call(*words: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["coterie", *words])
        with pytest.raises(SystemExit) as end:
            main()
    return int(end.value.code or 0)


def printed(page: Path, title: str = "Command") -> str:
    """The command on a page, as a reader copies it."""
    text = page.read_text()
    found = re.search(rf"<summary>{title}</summary>.*?<pre[^>]*>(.*?)</pre>", text, re.S)
    assert found, f"no {title}"
    return html.unescape(re.sub(r"<[^>]*>", "", found[1])).strip()


def typed(command: str, elsewhere: Path) -> None:
    """Type a command in another folder: `cd HOME && coterie ...`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(elsewhere)
        words = shlex.split(command)
        if words[0] == "cd":
            patch.chdir(words[1])
            assert words[2] == "&&"
            words = words[3:]
        assert words[0] == "coterie"
        assert call(*words[1:]) == 0


def same_csvs(first: Path, again: Path) -> None:
    names = {str(file.relative_to(first)) for file in first.rglob("*.csv")}
    assert names
    assert names == {str(file.relative_to(again)) for file in again.rglob("*.csv")}
    for name in names:
        assert (first / name).read_bytes() == (again / name).read_bytes(), name


def readings(file: Path) -> Path:
    rng = np.random.default_rng(0)
    rows = [f"{'abcd'[i % 4]},{rng.normal() + i % 2:.4f},{i % 2}" for i in range(80)]
    file.write_text("who,x,label\n" + "\n".join(rows) + "\n")
    return file


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "at home").mkdir()
    (tmp_path / "elsewhere").mkdir()
    readings(tmp_path / "at home" / "readings.csv")
    monkeypatch.chdir(tmp_path / "at home")
    return tmp_path / "at home"


def test_a_run(home: Path) -> None:
    """Its data are a file whose path counts from where the run was started."""
    words = ["data.source=readings.csv", "data.owner=who", "model.name=mclr", "train.rounds=2"]
    assert call("run", *words, "method=fedclust", "newcomers.share=0.25", "--out", "runs/a b") == 0
    typed(printed(home / "runs/a b/report.html"), home.parent / "elsewhere")
    same_csvs(home / "runs/a b", home / "runs/a b-again")


def test_a_comparison_with_settings_of_its_own(home: Path) -> None:
    methods = "fedavg,local:train.lr=0.1,fedclust:clusters=2"
    assert call("compare", "--methods", methods, "--seeds", "3,", *SMALL, "--out", "runs/c") == 0
    typed(printed(home / "runs/c/report.html"), home.parent / "elsewhere")
    same_csvs(home / "runs/c", home / "runs/c-again")
    first, again = ((home / f"runs/{name}/compare.toml") for name in ("c", "c-again"))
    then, now = (tomllib.loads(file.read_text()) for file in (first, again))
    assert (then["methods"], then["seeds"]) == (now["methods"], now["seeds"])


def test_a_run_by_code_of_ones_own_says_that_it_is_wanted(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "mine_again.py").write_text(
        "from coterie.methods.fedavg import FedAvg\nclass Mine(FedAvg):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(home))
    assert call("run", *SMALL, "--method", "mine_again:Mine", "--out", "runs/own") == 0
    command = printed(home / "runs/own/report.html")
    assert "--allow-code" in command
    typed(command, home.parent / "elsewhere")
    same_csvs(home / "runs/own", home / "runs/own-again")


def test_a_comparison_that_was_stopped_is_gone_on_with(home: Path) -> None:
    asked = ["compare", "--methods", "fedavg,local", "--seeds", "1", *SMALL, "--out", "c"]
    assert call(*asked) == 0
    whole = (home / "c/table.csv").read_bytes()
    (home / "c/local-seed0/cell.json").unlink()
    assert call("report", "c") == 0
    typed(printed(home / "c/report.html", "To go on after a stop"), home.parent / "elsewhere")
    assert (home / "c/local-seed0/cell.json").exists()
    assert (home / "c/table.csv").read_bytes() == whole


def test_some_methods_and_other_seeds_of_a_comparison(home: Path) -> None:
    asked = ["compare", "--methods", "fedavg,local,ditto", "--seeds", "1", *SMALL, "--out", "c"]
    assert call(*asked) == 0
    some = grid(home / "c/compare.toml", (), ["fedavg", "ditto"], [4, 5])
    assert (list(some.experiments), some.seeds) == (["fedavg", "ditto"], (4, 5))
    assert grid(home / "c/compare.toml").seeds == (0,)
    with pytest.raises(ConfigError, match="has no kin"):
        grid(home / "c/compare.toml", (), ["fedavg", "kin"])
