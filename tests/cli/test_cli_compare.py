"""The commands compare and newcomers: streams, formats, refusals; killed and called again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coterie.cli.main import call

SMALL = ["partition.kind=rotation", "partition.clients=4", "model.name=mclr", "train.rounds=2"]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_results_on_stdout_and_the_next_step_last(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["compare", *SMALL, "--methods", "fedavg,ifca:clusters=2", "--seeds", "2"]
    assert call([*arguments, "--out", "c"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("accuracy in %: mean over clients and 2 seeds, ± 95 % interval")
    assert "ifca:clusters=2" in said.out
    assert "Wilcoxon" in said.out
    words = [line.split()[0] for line in said.err.splitlines()]
    assert words[:4] == ["compare", "data", "model", "engine"], "what all runs have in common, once"
    assert words.count("data") == 1
    assert sum("begins" in line for line in said.err.splitlines()) == 4
    assert said.err.splitlines()[-1].startswith("next    coterie open c ")
    assert {p.name for p in Path("c").glob("*-seed*")} == {
        f"{m}-seed{s}" for m in ("fedavg", "ifca_clusters=2") for s in (0, 1)
    }
    assert call([*arguments, "--out", "c", "--format", "csv", "-q"]) == 0
    assert capsys.readouterr().out.startswith("method,runs,stage,accuracy_last,")
    assert call([*arguments, "--out", "c", "train.lr=0.3"]) == 5
    assert "train.lr: was 0.05, is 0.3" in capsys.readouterr().err


def test_a_setting_that_changes_the_clients_is_swept_in_one_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["compare", *SMALL[1:], "partition.kind=dirichlet", "--methods", "fedavg,local"]
    words += ["--seeds", "1", "--sweep", "partition.alpha=0.1,1", "--target", "0.05,0.99", "-q"]
    assert call([*words, "--out", "c"]) == 0
    said = capsys.readouterr().out
    assert "method  alpha=0.1  alpha=1" in said
    assert said.count("rounds to 5 %") == said.count("rounds to 99 %") == 2, "targets of each"
    assert "never" in said
    rows = Path("c/sweep.csv").read_text().splitlines()
    assert rows[0].startswith("partition.alpha,method,runs")
    assert [row.split(",")[:2] for row in rows[1:]] == [
        [alpha, m] for alpha in ("0.1", "1") for m in ("fedavg", "local")
    ]
    facts = [
        json.loads(Path(f"c/alpha={a}/fedavg-seed0/cell.json").read_text()) for a in ("0.1", 1)
    ]
    assert facts[0]["population"] != facts[1]["population"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--methods", "fedavg,ifca", "--target", "80"], "--target is '80'"),
        (["--methods", "fedavg,ifca", "--sweep", "partition.alpha=1"], "name several"),
        (["--methods", "fedavg"], "C017"),
        (["--methods", "fedavg,ifca", "--seeds", "x"], "--seeds is 'x'"),
        (["--methods", "fedavg,ifca", "--format", "pdf"], "there is no format pdf"),
        (["--methods", "fedavg,ifka"], "a similar name exists: ifca"),
        (["--methods", "fedavg,ifca", "method=fedavg"], "--methods"),
    ],
)
def test_mistakes_cost_nothing(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["compare", *SMALL, *arguments]) == 2
    assert told in capsys.readouterr().err
    assert not list(Path().iterdir())


@pytest.mark.parametrize("none", [["--share", "0"], ["newcomers.share=0"]])
def test_newcomers_of_whom_nobody_is_held_out_are_refused(
    none: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["newcomers", *SMALL, "--method", "fedavg", *none]) == 2
    assert "newcomers.share = 0 holds nobody out" in capsys.readouterr().err
    assert not list(Path().iterdir())


def test_newcomers_join_and_the_command_may_be_given_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["newcomers", *SMALL, "--method", "fedclust", "--epochs", "1", "--out", "n", "-q"]
    assert call([*arguments, "--shots", "1"]) == 0
    said = capsys.readouterr()
    head, _, every, one, sentence = said.out.splitlines()
    assert head.split("  ")[0] == "samples"
    assert (every.split()[0], one.split()[0]) == ("all", "1")
    assert sentence.startswith("1 newcomer joins 3 clients")
    assert said.err.splitlines()[-1].startswith("next")
    assert call([*arguments, "--shots", "1", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {r["epochs"] for r in rows if "newcomer" in r} == {0, 1}
    assert call([*arguments, "--shots", "3"]) == 5, "other settings than the folder's"


def test_the_demo_tells_p(capsys: pytest.CaptureFixture[str]) -> None:
    from coterie.cli.train import compared
    from coterie.studies.run.result import PerClient

    class Told:
        def __init__(self, level: float) -> None:
            self.accuracy = PerClient({str(i): level for i in range(20)})

    runs = {n: Told(a) for n, a in (("fedavg", 0.7), ("fedclust", 0.9))}
    expected = "fedclust is better than fedavg for 20 of 20 clients (Wilcoxon p < 0.001)"
    assert compared(runs) == expected  # type: ignore[arg-type]


GRID = ["partition.kind=rotation", "partition.clients=6", "model.name=mlp", "train.rounds=8"]
GRID += ["--methods", "fedavg,fedclust:warmup_epochs=1,ifca", "--seeds", "2"]


STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    yield
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            process.kill()
            process.communicate()


def start(out: str, *more: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "coterie", "compare", *GRID, "--out", out, *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    process = subprocess.Popen(words, text=True, stdout=pipe, stderr=pipe, env=environment)
    STARTED.append(process)
    return process


def until(true: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def reached(cell: str, round: int) -> bool:
    found = (p.parent.name for p in Path(cell).glob("checkpoints/[0-9]*/manifest.json"))
    return any(int(name) >= round for name in found)


def children(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def gone(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.slow
def test_killed_twice_and_interrupted_it_comes_to_the_same_result() -> None:
    process = start("killed")
    until(lambda: reached("killed/fedclust_warmup_epochs=1-seed0", 2))
    process.kill()
    process.communicate()
    process = start("killed", "--jobs", "2")  # other processes, which must end with it
    until(lambda: reached("killed/ifca-seed0", 1) and bool(children(process.pid)))
    workers = children(process.pid)
    workers += [w for parent in workers for w in children(parent)]  # those of an engine
    process.kill()
    process.communicate()
    until(lambda: all(map(gone, workers)), 20)
    process = start("killed")
    until(lambda: reached("killed/ifca-seed1", 1))
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    if process.returncode:  # it may just have come to its end
        assert process.returncode == 130
        assert said.splitlines()[-1].startswith("next    coterie compare ")
    process = start("killed", "--jobs", "2")
    told, _ = process.communicate()
    assert process.returncode == 0
    assert "Not done" not in told
    whole = start("whole")
    whole.communicate()
    for file in Path("whole").rglob("*.csv"):
        same = Path("killed", file.relative_to("whole"))
        assert same.read_bytes() == file.read_bytes(), file
    assert len(list(Path("whole").rglob("*.csv"))) == 1 + 2 * 6
