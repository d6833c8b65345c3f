"""The README does what it says: its commands and its Python run, in its order."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from sklearn.datasets import load_digits

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


COMMANDS = re.findall(r"^\$ (coterie .*)$", "".join(blocks("console")), re.MULTILINE)


def photos(folder: Path) -> None:
    """The folder of class folders that the README speaks of."""
    digits = load_digits()
    for i, (pixels, label) in enumerate(zip(digits.images[:240], digits.target, strict=False)):
        (folder / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray((15 * pixels).astype("uint8")).save(folder / str(label) / f"{i}.png")


@pytest.mark.slow
def test_every_command_of_the_readme_runs(tmp_path: Path) -> None:
    photos(tmp_path / "photos")
    for command in COMMANDS:
        done = subprocess.run(
            [sys.executable, "-m", *shlex.split(command)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert (tmp_path / "runs/mine/summary.json").exists()


@pytest.mark.slow
def test_every_python_block_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out.startswith("Population(digits: 10 clients in 2 groups")


def test_the_readme_has_commands_to_run() -> None:
    assert len(COMMANDS) >= 8
    assert blocks("python")


def test_every_console_line_of_the_readme_is_a_coterie_command() -> None:
    for line in "".join(blocks("console")).splitlines():
        assert line.startswith("$ coterie "), line


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_the_readme_names_what_sets_up_and_tests(command: str) -> None:
    assert command in README
