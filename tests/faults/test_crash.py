"""A crash at any storage operation of any command leaves the end of a round, which goes on exactly.

The process dies, or the power is cut: what was not synced is lost. Each command is done once to
count its operations, then once for every one of them, and each time given again.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import coterie as ct
from tests.faults.commands import COMMANDS, Command, saved_rounds, strays, written
from tests.faults.disk import HOWS, Disk, How, PowerCut

Figure = Callable[..., None]
OTHERS = [name for name in COMMANDS if name != "newcomers"]
SPARSE = 9  # of so many operations one is tried, where not all are


def undisturbed(command: Command, home: Path) -> tuple[dict[str, bytes], list[str]]:
    """What a command leaves that nobody disturbs, and its operations.

    It is always in the same folder: pages tell how to do things again.
    """
    command.before(home / "r")
    with Disk(home / "r").watched() as disk:
        command.go(home / "r")
    left = written(home / "r", command.timed)
    shutil.rmtree(home / "r")
    return left, disk.names


def places_of(how: How, operations: list[str]) -> list[int]:
    """The operations at which a crash of this kind differs from another; counted from 1."""
    kinds = {"half done": ("write",), "lost": ("fsync", "replace", "rename")}.get(how)
    kind = [name.partition(" ")[0] for name in operations]
    return [n for n, what in enumerate(kind, 1) if kinds is None or what in kinds]


def committed(operations: list[str]) -> dict[str, int]:
    """The newest round in each folder of checkpoints after these operations: never another."""
    names = (re.fullmatch(r"replace (.*checkpoints)/\.(\d+)\.tmp", name) for name in operations)
    return {found[1]: int(found[2]) for found in names if found}


def crash_everywhere(name: str, how: How, home: Path, every: int = 1) -> int:
    """Crash at every operation, or at some, and go on; how many there were."""
    command = COMMANDS[name]
    expected, operations = undisturbed(command, home)
    every_place, folder = places_of(how, operations), home / "r"
    places = every_place[min(every // 2, len(every_place) - 1) :: every]  # at least one of them
    command.before(folder)
    first = {home: max(found) for home, found in saved_rounds(folder).items()}
    shutil.rmtree(folder, ignore_errors=True)
    for n in places:
        command.before(folder)
        with Disk(folder, n, how).watched(), pytest.raises(PowerCut):
            command.go(folder)
        place = f"{how} at operation {n}, {operations[n - 1]}"
        newest = {home: max(found) for home, found in saved_rounds(folder).items()}
        assert newest == first | committed(operations[: n - 1]), place
        command.go(folder)
        assert written(folder, command.timed) == expected, place
        assert strays(folder) == [], place
        shutil.rmtree(folder)
    return len(places)


@pytest.mark.row(2)
@pytest.mark.thorough
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_crash_at_every_storage_operation_goes_on_to_the_same_bytes(
    name: str, how: How, tmp_path: Path, figure: Figure
) -> None:
    tried = crash_everywhere(name, how, tmp_path)
    figure("storage crash points", tried)
    figure("identical resumes", tried)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_crash_at_some_storage_operations_goes_on_to_the_same_bytes(
    name: str, tmp_path: Path
) -> None:
    for how in HOWS:
        (tmp_path / how).mkdir()
        assert crash_everywhere(name, how, tmp_path / how, SPARSE) > 0


def refuse(number: int) -> Callable[[], None]:
    def fault() -> None:
        raise OSError(number, os.strerror(number))

    return fault


@pytest.mark.row(11)
@pytest.mark.slow
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS], ids=["full", "read-only"])
@pytest.mark.parametrize(
    "name", ["newcomers", *(pytest.param(n, marks=pytest.mark.thorough) for n in OTHERS)]
)
def test_a_disk_that_refuses_any_operation_ends_with_7_and_costs_nothing(
    name: str, number: int, tmp_path: Path, figure: Figure
) -> None:
    """From some operation on the disk takes nothing more; then there is room again."""
    command = COMMANDS[name]
    expected, operations = undisturbed(command, tmp_path)
    every, folder = 2 if len(operations) < 40 else 8, tmp_path / "r"
    for n in range(1, len(operations) + 1, every):
        command.before(folder)
        disk = Disk(folder, n)
        disk.fault = refuse(number)
        place = f"operation {n}, {operations[n - 1]}"
        with disk.watched():
            ended = refused(command, folder)
        assert ended is None or ended.exit == 7, f"{place}: {ended!r}"
        if ended is not None and number == errno.ENOSPC and ended.code == "S001":
            assert "bytes wanted" in ended.why, place
            assert str(folder) in ended.what, place
        saved_rounds(folder)  # each of them loads
        command.go(folder)
        assert written(folder, command.timed) == expected, place
        figure("full or read-only disks", 1)
        shutil.rmtree(folder)


def refused(command: Command, folder: Path) -> ct.CoterieError | None:
    """The error that a command ends with; none if it could do without what was refused."""
    try:
        command.go(folder)
    except ct.CoterieError as error:
        return error
    return None


def test_the_disk_counts_what_changes_and_forgets_what_was_not_synced(tmp_path: Path) -> None:
    """The instrument itself."""

    def work() -> None:
        file = tmp_path / "a"
        with open(file, "wb") as out:
            out.write(b"four")
            out.flush()
            os.fsync(out.fileno())
            out.write(b"more")
        file.rename(tmp_path / "b")
        (tmp_path / "c").mkdir()

    def names() -> list[str]:
        return sorted(p.name for p in tmp_path.iterdir())

    with Disk(tmp_path).watched() as whole:
        work()
    assert whole.names == ["open a", "write a", "fsync a", "write a", "rename a", "mkdir c"]
    left: dict[Any, Any] = {}
    for how in HOWS:
        for n in (4, 6):
            for path in tmp_path.iterdir():
                path.rmdir() if path.is_dir() else path.unlink()
            with Disk(tmp_path, n, how).watched(), pytest.raises(PowerCut):
                work()
            left[how, n] = names(), (tmp_path / names()[0]).read_bytes()
    assert left["not done", 4] == (["a"], b"four")
    assert left["half done", 4] == (["a"], b"fourmo")
    assert left["not done", 6] == (["b"], b"fourmore")
    assert left["lost", 6] == (["b"], b"four")
