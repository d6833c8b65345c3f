"""Ctrl-C and SIGTERM at any point of a round: the run ends in good order, at once, with 130."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coterie.cli.main import call
from coterie.core import stopping
from tests.faults.commands import configured, written
from tests.faults.points import ended, forked, listening

LONG = ["method=fedavg", "train.rounds=20"]
POINTS = ("round", "heard", "recorded", "commit", "committed")


def run(file: Path, folder: Path, said: Path, strike: Callable[[str], None]) -> int:
    """`coterie run` as a program does it, which hears `strike` at every point."""
    sys.stdout = sys.stderr = open(said, "w", buffering=1)  # noqa: SIM115
    stopping.heed()
    with listening(lambda point, about: strike(point)):
        return call(["run", str(file), *LONG, "--out", str(folder), "--no-report"])


@pytest.mark.row(3)
@pytest.mark.slow
@pytest.mark.parametrize("number", stopping.SIGNALS)
@pytest.mark.parametrize("point", POINTS)
def test_a_signal_at_any_point_ends_the_run_in_good_order(
    point: str, number: int, tmp_path: Path, figure: Callable[..., None]
) -> None:
    configured({}, tmp_path)
    file, folder, said = tmp_path / "small.toml", tmp_path / "r", tmp_path / "said"
    seen: list[str] = []

    def strike(reached: str) -> None:
        seen.append(reached)
        if reached == point and seen.count(point) == (20 if point == "heard" else 3):
            (tmp_path / "sent").write_text(str(time.monotonic()))
            os.kill(os.getpid(), number)

    code = ended(forked(lambda: run(file, folder, said, strike)))
    seconds = time.monotonic() - float((tmp_path / "sent").read_text())
    assert code == 130, said.read_text()
    text = said.read_text()
    assert "interrupted; the last whole round is saved" in text
    assert text.splitlines()[-1] == f"next    coterie resume {folder}"
    assert "Traceback" not in text
    assert seconds < 2
    figure("most seconds until it ended", seconds, by="most")
    figure("signals", 1)
    if number == signal.SIGINT and point in ("heard", "commit"):
        whole = tmp_path / "whole"
        assert call(["resume", str(folder), "--quiet", "--no-report"]) == 0
        assert call(["run", str(file), *LONG, "--out", str(whole), "--quiet", "--no-report"]) == 0
        assert written(folder) == written(whole)
