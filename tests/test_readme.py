"""The README does what it says: its commands and its Python run, in its order."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from coterie.cli.main import call
from coterie.methods import METHODS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


COMMANDS = re.findall(r"^\$ (coterie .*)$", "".join(blocks("console")), re.MULTILINE)
PROGRAMS = [  # the arguments of python for each command and each block, in the README's order
    words
    for language, text in re.findall(
        r"^```(console|python)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE
    )
    for words in (
        [["-c", text]]
        if language == "python"
        else [["-m", *shlex.split(line.removeprefix("$ "))] for line in text.splitlines()]
    )
]


@pytest.mark.slow
def test_every_block_of_the_readme_runs_in_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In an empty folder: what a block needs, one before it has made.

    The first is a program of its own; the others need not start PyTorch again.
    """
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, *PROGRAMS[0]], capture_output=True, check=True)
    for words in PROGRAMS[1:]:
        match words:
            case ["-m", "coterie", *arguments]:
                assert call(arguments) == 0, f"{words}\n{capsys.readouterr().err}"
            case ["-c", text]:
                exec(compile(text, "README.md", "exec"), {"__name__": "readme"})
    assert "\nPopulation(digits: 10 clients in 2 groups" in capsys.readouterr().out
    made = "runs/mine/summary.json", "runs/photos/export/0.safetensors", "said.csv"
    assert [name for name in made if not (tmp_path / name).exists()] == []


def test_the_readme_has_commands_to_run() -> None:
    assert len(COMMANDS) >= 10
    assert len(PROGRAMS) == len(COMMANDS) + len(blocks("python"))
    assert len(blocks("python")) >= 2


def test_the_readme_counts_the_methods() -> None:
    assert f"**{len(METHODS)} methods**" in README


def test_every_console_line_of_the_readme_is_a_coterie_command() -> None:
    for line in "".join(blocks("console")).splitlines():
        assert line.startswith("$ coterie "), line


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_the_readme_names_what_sets_up_and_tests(command: str) -> None:
    assert command in README
