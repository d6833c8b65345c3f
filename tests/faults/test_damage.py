"""A run whose folder was damaged, changed, or is in somebody else's hands."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import coterie as ct
from coterie.cli.main import call
from coterie.runs import checkpoint
from coterie.runs.records import RunFolder
from coterie.studies.run import training
from tests.faults.commands import configured, train, written
from tests.faults.points import forked

Figure = Callable[..., None]
CUTS, FLIPS = 20, 50


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three rounds with two checkpoints."""
    home = tmp_path_factory.mktemp("damage")
    train(home / "r", method="ditto", train__rounds=3)
    return home / "r"


def damages(newest: Path) -> Iterator[tuple[Path, bytes | None]]:
    """A file of a checkpoint and what is left of it: cut, changed by one bit, gone."""
    draw, files = random.Random(7), sorted(newest.iterdir())
    for _ in range(CUTS):
        data = (file := draw.choice(files)).read_bytes()
        yield file, data[: draw.randrange(len(data))]
    for _ in range(FLIPS):
        data = bytearray((file := draw.choice(files)).read_bytes())
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        yield file, bytes(data)
    for file in files:
        yield file, None


@pytest.mark.row(12)
def test_every_damage_of_the_newest_checkpoint_is_found_and_the_one_before_is_used(
    whole: Path, tmp_path: Path, figure: Figure
) -> None:
    newest = whole / "checkpoints" / "000003"
    resumed = 0
    for place, (file, left) in enumerate(list(damages(newest))):
        folder = tmp_path / "r"
        shutil.copytree(whole, folder)
        harmed = folder / file.relative_to(whole)
        harmed.unlink() if left is None else harmed.write_bytes(left)
        found, (fault,) = checkpoint.latest(folder / "checkpoints")
        assert found.state.round == 2
        assert str(harmed) in fault.what
        if place % 12 == 0:
            told: list[str] = []
            ct.resume(folder, page=False, on_event=lambda e: told.append(str(e.get("text"))))  # noqa: B023
            assert any("round 2 is used instead" in text for text in told)
            assert written(folder) == written(whole)
            resumed += 1
        figure("damaged files", 1)
        shutil.rmtree(folder)
    figure("resumes from the round before, identical", resumed)


@pytest.mark.row(12)
def test_without_a_whole_checkpoint_the_run_ends_with_5(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(whole, tmp_path / "r")
    for file in (tmp_path / "r" / "checkpoints").rglob("state.safetensors"):
        file.write_bytes(file.read_bytes()[:-1])
    assert call(["resume", str(tmp_path / "r"), "--rounds", "4"]) == 5
    said = capsys.readouterr().err
    assert "no usable checkpoint" in said
    assert said.count("state.safetensors is damaged") == 2


@pytest.mark.row(4, counts="changed runs")
@pytest.mark.parametrize("what", ["threads", "torch", "coterie"])
def test_what_may_change_the_bits_is_a_warning_of_the_resume(
    what: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(whole, tmp_path / "r")
    if what == "threads":
        monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    elif what == "torch":
        monkeypatch.setattr(torch, "__version__", "9.9")
    else:
        monkeypatch.setattr(training, "__version__", "9.9")
    told: list[str] = []
    ct.resume(
        tmp_path / "r",
        settings=[("train.rounds", 4)],
        page=False,
        on_event=lambda e: told.append(str(e.get("text"))),
    )
    (text,) = [t for t in told if "not be bit-identical" in t]
    assert text.startswith(f"{what} was ")


@pytest.mark.row(4, counts="changed runs")
def test_every_setting_that_differs_is_named_and_may_be_allowed(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(whole, tmp_path / "r")
    changed = ["train.lr=0.5", "partition.clients=5", "data.test_share=0.4", "--rounds", "4"]
    assert call(["resume", str(tmp_path / "r"), *changed]) == 5
    said = capsys.readouterr().err
    assert all(f"{word.partition('=')[0]}: was " in said for word in changed[:3])
    words = ["train.lr=0.5", "--allow-change", "train.lr", "--rounds", "4", "--no-report"]
    assert call(["resume", str(tmp_path / "r"), *words]) == 0


def child_that(does: Callable[[], None]) -> int:
    """A process that does something and then waits to be killed; it has done it on return."""
    ready, tell = os.pipe()

    def work() -> int:
        does()
        os.write(tell, b"!")
        signal.pause()
        return 1

    child = forked(work)
    os.close(tell)  # or the end of a child that failed would not be heard
    said = os.read(ready, 1)
    os.close(ready)
    assert said == b"!"
    return child


@pytest.mark.row(13, counts="second processes")
def test_the_second_process_hears_who_is_first_and_a_killed_one_holds_nobody_up(
    whole: Path, tmp_path: Path
) -> None:
    shutil.copytree(whole, tmp_path / "r")
    held: list[RunFolder] = []
    child = child_that(lambda: held.append(RunFolder(tmp_path / "r").__enter__()))
    try:
        with pytest.raises(ct.CheckpointError) as error:
            ct.resume(tmp_path / "r", settings=[("train.rounds", 4)], page=False)
        assert error.value.code == "K007"
        assert f"process {child} on {socket.gethostname()}" in error.value.what
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ct.resume(tmp_path / "r", settings=[("train.rounds", 4)], page=False).state.round == 4


@pytest.mark.row(11)
@pytest.mark.parametrize("room", [100, 6_000])
def test_a_limit_of_the_system_ends_a_run_with_7_and_its_last_round_loads(
    room: int, tmp_path: Path
) -> None:
    """No file may be longer than `room` bytes: what EFBIG says is what a full disk says."""
    folder, said = tmp_path / "r", tmp_path / "said"
    configured({}, tmp_path)

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        try:
            train(folder, method="ditto", train__rounds=8)
            end = "it ended well"
        except ct.CoterieError as error:
            end = f"{error.exit} {error}"
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        os.write(os.open(said, os.O_WRONLY | os.O_CREAT), end[: room - 1].encode())

    child = child_that(limited)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    text = said.read_text()
    assert text.startswith("7 cannot write ")
    assert str(folder)[: room - 20] in text
    assert "bytes wanted" in text or room == 100
    for path in checkpoint.rounds(folder / "checkpoints"):
        checkpoint.load(path)
    train(folder, method="ditto", train__rounds=8)
    train(tmp_path / "whole", method="ditto", train__rounds=8)
    assert written(folder) == written(tmp_path / "whole")
