"""What commands say of a run: what it is about, how it goes on, and which command works next."""

from __future__ import annotations

import ast
import json
import re
import shlex
import tomllib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import coterie
from coterie.cli.main import call
from coterie.runs.reading import RunReader

SMALL = ["--method", "fedavg", "--rounds", "1", "partition.clients=3", "engine.name=serial"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def photos(height: int = 20, width: int = 18) -> None:
    """Two classes of coloured noise."""
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        Path("photos", name).mkdir(parents=True)
        for i in range(12):
            pixels = rng.integers(0, 255, (height, width, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(Path("photos", name, f"{i}.png"))


def named(folder: str) -> str:
    return str(tomllib.loads(Path(folder, "run.toml").read_text())["model"]["name"])


def test_a_run_says_its_data_network_engine_and_cost(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", *SMALL, "--out", "r", "--no-report"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[:3] == [
        "data    digits: 1,437 training samples of 1x8x8, 10 classes; 3 clients by iid",
        "model   mlp (chosen for the data), 167,178 parameters; "
        "about 2.0 MB down and as much up a round",
        "engine  serial: as asked",
    ]
    assert named("r") == "mlp"
    assert call(["run", *SMALL, "--model", "mclr", "--method", "local", "--out", "s"]) == 0
    assert "model   mclr, 650 parameters; nothing is sent" in capsys.readouterr().err


@pytest.mark.parametrize("given", [["rotation:4"], ["rotation", "partition.angles=[4]"]])
def test_a_number_of_turns_is_said_as_angles(
    given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    kind, *more = given
    run = ["run", *SMALL, "--model", "mclr", "--partition", kind, *more, "partition.clients=4"]
    assert call([*run, "--out", "r", "--no-report"]) == 0
    assert "; 4 clients by rotation (0°/90°/180°/270°)\n" in capsys.readouterr().err
    kept = tomllib.loads(Path("r/run.toml").read_text())["partition"]
    assert (kept["kind"], kept["angles"]) == ("rotation", [0, 90, 180, 270])
    few = [*run, "partition.clients=3", "--out", "s"]
    assert call(few) == 2
    assert "more groups than clients (3)" in capsys.readouterr().err


def test_images_get_a_small_cnn_unless_a_network_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    photos()
    run = ["run", *SMALL, "--data", "photos", "--no-report", "--out"]
    assert call([*run, "r"]) == 0
    assert "model   lenet5 (chosen for the data), " in capsys.readouterr().err
    assert named("r") == "lenet5"
    assert call(["resume", "r", "--rounds", "2", "--no-report"]) == 0
    assert "model   lenet5, " in capsys.readouterr().err
    assert call([*run, "s", "--model", "mlp"]) == 0
    assert named("s") == "mlp"
    assert coterie.open_run("r").fed.layout.size < coterie.open_run("s").fed.layout.size


def test_the_same_command_goes_on_with_the_network_that_was_chosen() -> None:
    command = ["newcomers", "--method", "fedavg", "partition.clients=5", "newcomers.epochs=0"]
    assert call([*command, "train.rounds=1", "--out", "r"]) == 0
    assert call([*command, "train.rounds=1", "--out", "r"]) == 0
    assert named("r") == "mlp"


def test_after_a_resume_the_method_is_named_and_the_time_is_that_of_all_rounds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(["run", *SMALL, "--out", "r", "--no-report"]) == 0
    file = Path("r/events.jsonl")
    events = [json.loads(line) for line in file.read_text().splitlines()]
    for event in events:
        if event["event"] == "round":
            event["seconds"] = 100.0
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    capsys.readouterr()
    assert call(["resume", "r", "--rounds", "2", "--no-report"]) == 0
    said = capsys.readouterr()
    row = said.out.splitlines()[-1]
    assert row.startswith("fedavg ")
    assert "3 min 2" in row, "two rounds of 100 s, and a new one"
    assert "run     fedavg  continues after round 1 of 2" in said.err
    assert json.loads(Path("r/summary.json").read_text())["seconds"] == pytest.approx(200, abs=30)
    assert RunReader(Path("r")).seconds > 200


def test_help_explains_commands_as_their_own_help_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["help", "run"]) == 0
    told = capsys.readouterr().out
    assert call(["run", "--help"]) == 0
    assert told == capsys.readouterr().out
    assert told.startswith("Usage: coterie run ")
    assert call(["help", "c012"]) == 0
    assert capsys.readouterr().out.startswith("C012")


def test_a_comparison_without_a_terminal_says_how_far_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["--methods", "fedavg,local", "--seeds", "1", "train.rounds=10", "--out", "c"]
    assert call(["compare", *asked, "model.name=mclr", "partition.clients=3"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "compare 2 runs in c"
    assert [line.split()[0] for line in said[1:4]] == ["data", "model", "engine"]
    runs = [line.removeprefix("run").strip().split("  ")[:2] for line in said if line[:4] == "run "]
    rounds = ["begins: 10 rounds", "2/10", "4/10", "6/10", "8/10", "10 rounds"]
    assert [at for _, at in runs] == 2 * rounds
    assert len({cell for cell, _ in runs}) == 2


OWN = """
import coterie as ct

class Mine(ct.FedAvg):
    def round(self, state, fed):
        if state.round == 1 and not STOPPED:
            STOPPED.append(1)
            raise KeyboardInterrupt
        return super().round(state, fed)

STOPPED = []
"""


@pytest.mark.parametrize("command", ["run", "newcomers"])
def test_the_command_that_is_printed_goes_on_with_own_code(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    Path(f"own_{command}.py").write_text(OWN)
    settings = ["partition.clients=5", "train.rounds=2", "engine.name=serial", "model.name=mclr"]
    asked = [command, *settings, "--method", f"own_{command}:Mine", "--out", "r"]
    assert call(asked) == 130
    (line,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("next")]
    program, *words = shlex.split(line.removeprefix("next"))
    assert (program, words) == ("coterie", ["resume", "r", "--allow-code"])
    assert call(words) == 0
    (line,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("next")]
    assert line.startswith("next    coterie resume r --allow-code --rounds 4 ")
    if command == "newcomers":
        assert call(asked) == 0, "the same command goes on, too"


THINGS = "rounds?|runs|seeds|methods|epochs|steps|newcomers|groups|settings|parameters|clusters"
PLURAL = re.compile(
    rf"(of |most |least |from |to |than |has |are |for )?\{{[^{{}}]*\}} ({THINGS})\b"
)


def test_so_many_of_a_thing_are_counted_by_one_word() -> None:
    """f"{n} rounds" says "1 rounds" one day: `units.count` does not."""
    src = Path(coterie.__file__).parent
    found = []
    for file in {*src.rglob("*.py")} - {
        src / "studies" / "insight" / "costs.py"
    }:  # a page, of eight rounds
        text = file.read_text()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.JoinedStr):
                shown = ast.get_source_segment(text, node) or ""
                found += [f"{file.name}: {m[0]}" for m in PLURAL.finditer(shown) if not m[1]]
    assert found == []
