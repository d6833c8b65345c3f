"""What a command imports before it knows that it must: the start of every run is paid by everybody.

Modules are counted, never seconds: a busy machine must not fail a test.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from coterie.cli.app import app, typer

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
TAKE_RUNS = sorted(
    name
    for name, command in COMMANDS.items()
    if any((p.metavar or "").strip(".").startswith("RUN") for p in command.params)
)


def loaded(*arguments: str, code: int, cwd: Path, among: tuple[str, ...]) -> tuple[list[str], str]:
    """Which of some modules a command has imported in the end, and what it said on stderr."""
    script = (
        "import sys\n"
        "from coterie.cli.main import call\n"
        f"assert call(sys.argv[1:]) == {code}\n"
        f"print('loaded:', *(m for m in {among!r} if m in sys.modules))\n"
    )
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()[1:], done.stderr


def nowhere(command: click.Command) -> list[str]:
    """The arguments that name a run which is not there, and whatever else must be given."""
    words = []
    for p in command.params:
        run = (p.metavar or "").strip(".").startswith("RUN")
        if isinstance(p, click.Argument) and (run or p.required):
            words.append("runs/nowhere")
        elif run or p.required:
            words += [p.opts[0], "runs/nowhere"]
    return words


def test_the_commands_that_take_a_run_are_found() -> None:
    assert {"resume", "report", "open", "place", "live", "serve"} <= set(TAKE_RUNS)


@pytest.mark.parametrize("name", TAKE_RUNS)
def test_a_run_that_is_not_there_is_told_before_torch_is_imported(
    name: str, tmp_path: Path
) -> None:
    heavy = ("torch", "numpy", "pydantic", "plotly")
    words = nowhere(COMMANDS[name])
    found, said = loaded(name, *words, code=5, cwd=tmp_path, among=heavy)
    assert found == []
    assert "error[K006]: runs/nowhere is not the folder of a run" in said
    assert "it does not exist" in said


def test_the_runs_in_a_folder_are_named(tmp_path: Path) -> None:
    (tmp_path / "demo" / "fedavg").mkdir(parents=True)
    (tmp_path / "demo" / "fedavg" / "run.toml").touch()
    _, said = loaded("resume", "demo", code=5, cwd=tmp_path, among=())
    assert "name one of the runs in it: demo/fedavg" in said


SPARE = ("scipy", "sklearn", "pandas", "plotly", "rich", "flwr", "numpy.f2py")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedavg", "kin"])
def test_one_round_imports_nothing_that_it_does_not_use(method: str, tmp_path: Path) -> None:
    run = ["run", "--rounds", "1", "--method", method, "--clients", "4", "--out", "r"]
    assert loaded(*run, code=0, cwd=tmp_path, among=SPARE)[0] == []
    assert (tmp_path / "r" / "report.html").exists()


@pytest.mark.slow
def test_planted_groups_are_compared_without_scikit_learn(tmp_path: Path) -> None:
    spare = ("sklearn", "scipy.stats", "scipy.optimize", "scipy.cluster", "pandas", "plotly")
    demo = ["demo", "--rounds", "1", "--out", "d"]
    assert loaded(*demo, code=0, cwd=tmp_path, among=spare)[0] == []


def test_a_command_looks_for_garbage_seldom_and_not_at_its_end(tmp_path: Path) -> None:
    script = (
        "import atexit, gc, sys\n"
        "from coterie.__main__ import PATIENCE, main\n"
        "found = lambda: (gc.get_threshold()[:2] == PATIENCE, gc.get_freeze_count() > 0)\n"
        "atexit.register(lambda: print(*found()))\n"
        "main()\n"
    )
    command = [sys.executable, "-c", script, "datasets"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True True"
