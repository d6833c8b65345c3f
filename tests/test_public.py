"""The public names: each loads, costs nothing before it is used, and has its type."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import coterie as ct
from coterie.methods import METHODS

ROOT = Path(__file__).parents[1]
SCRIPT = """
import coterie as ct

clients = ct.partition("digits", "rotation", clients=4)
result = ct.fit(ct.Kin(), clients, "cnn-s", rounds="two")
result.acuracy
ct.Solver(lr="fast")
ct.Train(ct.SGD())
ct.grouping.cut(3, 0.5)
ct.Solverr()


@ct.dataclass(frozen=True)
class Mine:
    share: ct.Share = "half"
"""
MISTAKES = [5, 6, 7, 8, 9, 10, 15]  # the lines of the script that are wrong


@pytest.mark.parametrize("name", ct.__all__)
def test_a_public_name_is_there(name: str) -> None:
    assert getattr(ct, name) is not None


def test_every_method_is_public() -> None:
    assert {entry.cls for entry in METHODS.values()} <= set(ct.__all__)


def test_a_name_that_is_not_there_is_told() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Solverr'"):
        ct.Solverr  # noqa: B018


def test_importing_coterie_costs_no_torch() -> None:
    code = (
        "import sys, coterie; assert 'torch' not in sys.modules and 'pydantic' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.slow
def test_a_type_checker_finds_the_mistakes_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    strict = ["--strict", "--no-error-summary", "--config-file", str(ROOT / "pyproject.toml")]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *strict, str(script)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    told = [line for line in done.stdout.splitlines() if line.startswith(str(script))]
    assert sorted({int(line.split(":")[1]) for line in told}) == MISTAKES, done.stdout
