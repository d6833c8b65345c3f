"""Commands that train: streams, folders, going on after a stop, and Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from coterie.cli.main import call

SMALL = ["--model", "mclr", "--clients", "4", "--partition", "dirichlet"]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_results_go_to_stdout_and_the_rest_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", *SMALL, "--rounds", "2", "--out", "r"]) == 0
    said = capsys.readouterr()
    head, _, row = said.out.splitlines()
    assert head.split()[0] == "method"
    assert row.split()[0] == "kin"
    assert [line.split()[0] for line in said.err.splitlines()] == [
        *["method", "data", "model", "engine"],
        *["run"] * 3,
        *["records", "report", "next"],
    ]
    assert "\x1b" not in said.out + said.err


def test_quiet_leaves_out_the_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", *SMALL, "--rounds", "1", "--out", "r", "--quiet"]) == 0
    said = [line.split()[0] for line in capsys.readouterr().err.splitlines()]
    assert said == ["records", "report", "next"]
    assert Path("r/report.html").exists()


def test_a_report_can_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", *SMALL, "--rounds", "1", "--out", "r", "--quiet", "--no-report"]) == 0
    assert "report" not in capsys.readouterr().err
    assert not Path("r/report.html").exists()


def test_json_is_one_object_per_line_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", *SMALL, "--rounds", "2", "--out", "r", "--json"]) == 0
    said = capsys.readouterr()
    events = [json.loads(line) for line in said.out.splitlines()]
    names = [e["event"] for e in events]
    assert names == ["start", "round", "round", "round", "done", "result"]
    assert events[-1]["summary"]["rounds"] == 2
    assert said.err == ""


def test_a_file_flags_and_settings_work_together(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my.toml").write_text('method = "fedprox"\n[model]\nname = "mclr"\n[train]\nrounds = 9\n')
    arguments = ["run", "my.toml", "train.lr=0.25", "--rounds", "1", "fedprox.mu=0.5"]
    assert call([*arguments, "--out", "r", "--quiet"]) == 0
    text = Path("r/run.toml").read_text()
    for line in ('method = "fedprox"', "rounds = 1", "lr = 0.25", "mu = 0.5", 'name = "mclr"'):
        assert f"\n{line}\n" in f"\n{text}"


def test_without_out_the_folder_is_named_by_the_experiment(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for _ in range(2):
        assert call(["run", *SMALL, "--rounds", "1", "output.dir=runs/{method}-{seed}"]) == 0
    assert sorted(p.name for p in Path("runs").iterdir()) == ["kin-0", "kin-0-2"]


def test_a_run_is_not_written_over(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", *SMALL, "--rounds", "1", "--out", "r"]) == 0
    before = Path("r/metrics.csv").read_bytes()
    capsys.readouterr()
    assert call(["run", *SMALL, "--rounds", "2", "--out", "r"]) == 5
    assert Path("r/metrics.csv").read_bytes() == before
    said = capsys.readouterr().err
    assert "coterie resume r" in said
    assert "saved" not in said, "what is there is not this run's"


def test_resuming_to_more_rounds_equals_running_them_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(["run", *SMALL, "--rounds", "4", "--out", "whole"]) == 0
    assert call(["run", *SMALL, "--rounds", "2", "--out", "parts"]) == 0
    assert call(["resume", "parts", "--rounds", "4"]) == 0
    for name in ("metrics.csv", "clusters.csv"):
        assert Path("parts", name).read_bytes() == Path("whole", name).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["resume", "nowhere"], 5),
        (["resume", "r", "train.lr=9"], 5),
        (["resume", "r", "train.lr=-9"], 2),
        (["resume", "r", "train.lr=0.5", "--allow-change", "train.lr", "--rounds", "2"], 0),
    ],
)
@pytest.mark.row(4, counts="changed runs")
def test_resume_refuses_what_it_must(
    arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["run", *SMALL, "--rounds", "1", "--out", "r"]) == 0
    assert call(arguments) == code


@pytest.mark.slow
def test_the_demo_compares_two_methods(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["demo", "--rounds", "1", "--quiet"]) == 0
    said = capsys.readouterr()
    rows = said.out.splitlines()
    assert rows[2].split()[0] == "fedavg"
    assert " of 20 clients" in rows[4]
    assert "Wilcoxon" in rows[4] or "equal" in rows[4]
    assert said.err.splitlines()[-1].startswith("next    coterie init my.toml")
    assert len(list(Path("runs/demo").glob("*/summary.json"))) == 2
    assert call(["demo", "--rounds", "1", "--quiet"]) == 0, "a demo may be seen again"


def start(arguments: list[str], **keywords: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "coterie", *arguments]
    return subprocess.Popen(command, text=True, stderr=subprocess.PIPE, **keywords)


def wait_for_round(process: subprocess.Popen[str]) -> None:
    assert process.stderr
    if any(" 2/60 " in line for line in process.stderr):
        return
    raise AssertionError("the run ended before its second round")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.row(3)
def test_a_signal_stops_in_good_order_and_says_how_to_go_on(number: int) -> None:
    quick = ["method=fedavg", *SMALL, "--rounds", "60"]  # kin would test for most of a minute
    process = start(["run", *quick, "--out", "r"])
    wait_for_round(process)
    sent = time.monotonic()
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert time.monotonic() - sent < 5
    assert process.returncode == 130
    assert said.splitlines()[-2:] == [
        "interrupted; the last whole round is saved",
        "next    coterie resume r",
    ]
    assert call(["resume", "r", "--rounds", "60", "--quiet"]) == 0
    assert call(["run", *quick, "--out", "whole", "--quiet"]) == 0
    assert Path("r/metrics.csv").read_bytes() == Path("whole/metrics.csv").read_bytes()


BUSY = """
import time
from coterie.cli import running
from coterie.cli.main import main
def execute(*args, **options):
    while True:
        try:
            print("busy", flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            pass
running.execute = execute
main(["run"])
"""


@pytest.mark.row(3)
def test_a_second_signal_ends_at_once() -> None:
    process = subprocess.Popen([sys.executable, "-c", BUSY], text=True, stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == "busy\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "busy\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=10) == 130
    process.stdout.close()


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 150])
def test_a_terminal_sees_a_bar_and_the_numbers(width: int) -> None:
    screen, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(width)}
    arguments = [sys.executable, "-m", "coterie", "run", *SMALL, "--rounds", "2", "--out", "r"]
    arguments += ["--method", "fedclust", "fedclust.clusters=2"]
    with subprocess.Popen(
        arguments, stderr=terminal, stdout=subprocess.DEVNULL, env=environment
    ) as process:
        os.close(terminal)
        shown = b""
        while True:
            try:
                part = os.read(screen, 4096)
            except OSError:  # the other end was closed
                break
            if not part:
                break
            shown += part
        assert process.wait(timeout=60) == 0
    os.close(screen)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    last = [line for line in re.split(r"[\r\n]+", text) if line.startswith("run ")][-1]
    assert re.search(r"━━ 2/2 .*\d %  worst .*\d %  2 clusters", last)
    assert len(last.rstrip()) <= width
