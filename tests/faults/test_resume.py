"""The commands of a run that is killed at any moment, and resumed: the bytes of an undisturbed one.

Kills at chosen moments of many more runs are in test_kill.py.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coterie.core.errors import CheckpointError
from coterie.runs import checkpoint
from coterie.studies.run.experiment import resume

RUN = """
method = "{method}"
seed = 3
[partition]
kind = "rotation:0,180"
clients = 6
[model]
name = "mclr"
[train]
rounds = 10
local_epochs = 1
participation = 0.5
"""
KILLS = 4


def coterie(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "coterie", *words], capture_output=True, text=True, check=check
    )


def written(folder: Path) -> dict[str, bytes]:
    """Everything that must not depend on whether the run was disturbed."""
    last = checkpoint.rounds(folder / "checkpoints")[0]
    names = ["metrics.csv", "clusters.csv", "run.toml"]
    files = [folder / name for name in names] + sorted(last.glob("*.safetensors"))
    return {str(f.relative_to(folder)): f.read_bytes() for f in files}


@pytest.fixture(scope="module", params=["fedclust"])
def undisturbed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp(request.param)
    (home / "run.toml").write_text(RUN.format(method=request.param))
    coterie("run", str(home / "run.toml"), "--out", str(home / "whole"), "--quiet")
    return home


@pytest.mark.row(1)
@pytest.mark.slow
def test_killed_at_random_moments_the_bytes_are_the_same(
    undisturbed: Path, figure: Callable[..., None]
) -> None:
    folder = undisturbed / "killed"
    draw = random.Random(undisturbed.name)
    kills = 0
    command = first = ["run", str(undisturbed / "run.toml"), "--out", str(folder), "--quiet"]
    while kills < KILLS:
        process = subprocess.Popen([sys.executable, "-m", "coterie", *command])
        while not (folder / "run.toml").exists() and process.poll() is None:
            time.sleep(0.005)  # before that, there is nothing to resume
        time.sleep(draw.uniform(0, 0.25))
        process.send_signal(signal.SIGKILL)
        struck = process.wait() == -signal.SIGKILL
        done = [p.name for p in checkpoint.rounds(folder / "checkpoints")]
        if not struck or "000010" in done:  # it was done before the blow fell: start over
            shutil.rmtree(folder)
            kills, command = 0, first
        else:
            kills, command = kills + 1, ["resume", str(folder), "--quiet"]
    coterie(*command)
    assert written(folder) == written(undisturbed / "whole")
    figure("process kills", KILLS)
    figure("identical resumes", KILLS)  # each was followed by one


@pytest.mark.slow
def test_a_run_in_two_halves_is_the_run_in_one(undisturbed: Path) -> None:
    folder = undisturbed / "halves"
    coterie("run", str(undisturbed / "run.toml"), "train.rounds=4", "--out", str(folder), "--quiet")
    resume(folder, settings=[("train.rounds", 10)])
    assert written(folder) == written(undisturbed / "whole")


@pytest.mark.slow
@pytest.mark.row(4, counts="changed runs")
def test_other_settings_are_refused_by_name(undisturbed: Path) -> None:
    with pytest.raises(CheckpointError, match="1 setting differs") as error:
        resume(undisturbed / "whole", settings=[("train.lr", 0.01), ("train.rounds", 12)])
    assert "train.lr: was 0.05, is 0.01" in error.value.where
    assert error.value.exit == 5


@pytest.mark.slow
@pytest.mark.row(12)
def test_a_changed_record_is_refused(undisturbed: Path) -> None:
    folder = undisturbed / "changed"
    shutil.copytree(undisturbed / "whole", folder)
    text = (folder / "metrics.csv").read_text()
    (folder / "metrics.csv").write_text(text.replace("accuracy", "accuracv", 1))
    with pytest.raises(CheckpointError, match="was changed since"):
        resume(folder, settings=[("train.rounds", 11)])


@pytest.mark.slow
@pytest.mark.row(13, counts="second processes")
def test_a_second_process_is_kept_out(undisturbed: Path) -> None:
    from coterie.runs.records import RunFolder

    with RunFolder(undisturbed / "whole"):
        second = coterie("resume", str(undisturbed / "whole"), "--rounds", "11", check=False)
    assert second.returncode == 5
    assert "in use by process" in second.stderr
