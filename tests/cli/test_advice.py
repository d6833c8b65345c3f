"""Advice is followed: what an error or a `next` line says in a real situation works."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coterie.cli.main import call

QUICK = ["train.rounds=1", "model.name=mclr", "engine.name=serial"]
OWN = """
import torch

def net(shape, classes):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, classes))
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def mixed() -> Path:
    """Photos of several sizes in two classes."""
    rng = np.random.default_rng(0)
    for i in range(60):
        file = Path("photos", "cat" if i % 2 else "dog", f"{i}.png")
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 255, (9 + i % 3, 12 - i % 2, 3), np.uint8)
        Image.fromarray(pixels).save(file)
    return Path("photos")


def said(words: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command says on stderr."""
    assert call(words) == code, capsys.readouterr().err
    return capsys.readouterr().err


def next_line(text: str) -> list[str]:
    """The command of the `next` line."""
    line = next(line for line in text.splitlines() if line.startswith("next "))
    command = re.split(r" {4}", line.removeprefix("next").strip())[0]
    program, *words = shlex.split(command)
    assert program == "coterie", line
    return words


def in_backticks(text: str) -> list[list[str]]:
    """The commands that a message names."""
    return [shlex.split(c)[1:] for c in re.findall(r"`(coterie [^`]*)`", text)]


@pytest.mark.parametrize("command", ["data", "run", "check", "inspect", "compare", "newcomers"])
def test_mixed_sizes_are_resized_by_the_setting_that_the_error_names(
    command: str, mixed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("my.toml").write_text(
        'method = "fedavg"\n[data]\nsource = "photos"\n[partition]\nclients = 3\n'
        '[train]\nrounds = 1\n[model]\nname = "mclr"\n'
    )
    words = {
        "data": ["data", "photos"],
        "inspect": ["inspect", "my.toml"],
        "compare": ["compare", "my.toml", "--methods", "fedavg,local", "--seeds", "1"],
    }.get(command, [command, "my.toml"])
    told = said(words, 1 if command == "compare" else 3, capsys)
    assert "data.size=9" in told
    setting = re.search(r"(data\.size=\d+)", told)
    both = re.search(r"(data\.size=\[\d+,\d+\])", told)
    assert setting
    out = ["--out", "again"] if command == "compare" else []
    said([*words, setting[1], *out], 0, capsys)
    if command == "data":
        assert both
        said([*words, both[1]], 0, capsys)
        said([*words, "size=9"], 0, capsys)


def test_the_next_line_of_data_trains_on_what_was_shown(
    mixed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = said(
        ["data", "photos", "size=8", "gray=true", "--clients", "3", "--seed", "4"], 0, capsys
    )
    words = next_line(told)
    assert words == [
        *["run", "--data", "photos", "data.size=8", "data.gray=true"],
        *["--partition", "dirichlet:0.3", "--clients", "3", "--seed", "4"],
    ]
    said([*words, *QUICK, "--out", "r"], 0, capsys)
    kept = Path("r/run.toml").read_text()
    for line in ("size = 8", "gray = true", "clients = 3", "seed = 4"):
        assert f"\n{line}\n" in kept


def test_the_next_line_of_data_keeps_labels_owners_and_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [f"{i % 7};{i % 5};{'ab'[i % 2]};site {i % 4}" for i in range(80)]
    Path("my table.csv").write_text("\n".join(["u;v;kind;place", *rows]) + "\n")
    asked = ["data", "my table.csv", "label=kind", "owner=place", "separator=;"]
    words = next_line(said(asked, 0, capsys))
    assert "--partition" not in words, "whoever names owners makes them the clients"
    said([*words, *QUICK, "--out", "r"], 0, capsys)
    assert 'owner = "place"' in Path("r/run.toml").read_text()


@pytest.mark.parametrize("first", [["digits"], ["data.source=digits"]])
def test_the_next_line_of_inspect_trains_the_clients_that_were_seen(
    first: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["inspect", *first, "partition.kind=rotation", "model.name=mclr", "--clients", "4"]
    words = next_line(said(asked, 0, capsys))
    assert words[:3] == ["run", "--data", "digits"]
    clients = {"partition.kind=rotation", "model.name=mclr", "partition.clients=4"}
    assert clients <= set(words)


SITUATIONS = {
    "init": (["init", "my.toml"], 0),
    "check": (["check", "my.toml", "train.rounds=1"], 0),
    "run": (["run", "my.toml", "--out", "fresh"], 0),
    "resume": (["resume", "r"], 0),
    "report": (["report", "r"], 0),
    "inspect a run": (["inspect", "r"], 0),
    "inspect a file": (["inspect", "my.toml", "--clients", "4"], 0),
    "inspect data": (["inspect", "digits", "model.name=mclr", "--clients", "4"], 0),
    "methods": (["methods", "ifca"], 0),
    "doctor": (["doctor"], 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SITUATIONS)
def test_the_next_line_of_a_command_works(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    small = 'method = "fedclust"\n[partition]\nclients = 4\n[model]\nname = "mclr"\n'
    words, code = SITUATIONS[name]
    if name != "init":
        Path("my.toml").write_text(small + "[train]\nrounds = 1\n")
        said(["run", "my.toml", "--out", "r", "--quiet"], 0, capsys)
    after = next_line(said(words, code, capsys))
    if name == "methods":
        Path("my.toml").unlink()  # the file that it writes
    if name in ("doctor",):
        after += ["--rounds", "1"]
    if after[0] == "run" and "--out" not in after:
        after += ["--out", "after", *QUICK[:1]]
    assert call(after) == 0, capsys.readouterr().err


ERRORS = {
    "a folder that holds a run": (["run", "my.toml", "--out", "r"], 5),
    "no such file": (["run", "mine.toml"], 2),
    "a file that is there": (["init", "my.toml"], 2),
    "several methods": (["run", "several.toml"], 2),
    "no such method": (["methods", "zzz"], 2),
    "no such network": (["check", "my.toml", "model.name=zzz"], 2),
    "no such data": (["data", "zzz"], 3),
    "no such code": (["help", "Z999"], 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ERRORS)
def test_the_commands_of_an_error_work(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    small = '[partition]\nclients = 4\n[model]\nname = "mclr"\n[train]\nrounds = 1\n'
    words, code = ERRORS[name]
    if name != "no such file":
        Path("my.toml").write_text('method = "fedavg"\n' + small)
    Path("several.toml").write_text('method = ["fedavg", "local"]\n' + small)
    if name == "a folder that holds a run":
        said(["run", "my.toml", "--out", "r", "--quiet"], 0, capsys)
    told = said(words, code, capsys)
    named = in_backticks(told)
    assert named, told
    for command in named:
        said([*command, *(["--seeds", "1"] if command[0] == "compare" else [])], 0, capsys)


def test_a_run_of_python_is_not_told_to_do_what_just_failed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said(["run", *QUICK, "partition.clients=3", "--out", "r", "--quiet"], 0, capsys)
    told = said(["resume", "r", "train.lr=9"], 5, capsys)
    assert "error[K010]" in told
    assert "coterie resume r" not in told, "it would only fail again"


def test_newcomers_that_differ_are_not_told_of_an_option_they_do_not_have(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["newcomers", *QUICK, "partition.clients=5", "--out", "n", "--quiet"]
    said(words, 0, capsys)
    told = said([*words, "train.lr=0.5"], 5, capsys)
    assert "error[K010]" in told
    assert "--allow-change" not in told
    assert "--out" in told


def test_a_network_in_the_working_folder_is_found_where_a_person_names_it() -> None:
    Path("mine.py").write_text(OWN)
    Path("my.toml").write_text('[model]\nname = "mine:net"\n[train]\nrounds = 1\n')
    program = str(Path(sys.executable).with_name("coterie"))
    quick = ["partition.clients=3", "train.rounds=1", "--quiet", "--no-report"]
    for words, code in (
        (["run", "--model", "mine:net", "--out", "a"], 0),
        (["run", "model.name=mine:net", "--out", "b"], 0),
        (["run", "my.toml", "--allow-code", "--out", "c"], 0),
        (["run", "my.toml", "--out", "d"], 2),  # nobody said so
    ):
        done = subprocess.run([program, *words, *quick], capture_output=True, text=True)
        assert done.returncode == code, done.stderr


def test_nothing_is_found_there_unless_somebody_names_code() -> None:
    from coterie.cli.main import expect_own_code

    before = list(sys.path)
    for words in (
        ["run", "--data", "my.csv", "--partition", "dirichlet:0.3", "--method", "fedavg"],
        ["compare", "--methods", "fedavg,fedclust:clusters=4", "partition.kind=rotation:0,90"],
    ):
        expect_own_code(words)
        assert sys.path == before


def test_code_is_found_there_where_somebody_names_it() -> None:
    from coterie.cli.main import OWN_CODE

    for word in ("mine:net", "model.name=mine:net", "auc,mine:fn", 'evaluate.metrics=["mine:fn"]'):
        assert OWN_CODE.search(word), word
