"""Machine code on disk: found again, never trusted blindly, never half written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from coterie.core.errors import ConfigError
from coterie.core.layout import Layout
from coterie.data.population import Population
from coterie.engines import build
from coterie.engines.choice import inner_engine
from coterie.engines.compiled import host
from coterie.engines.compiled.host import AVX2, AVX512, NotCompilableError, check_machine
from coterie.engines.compiled.planning import planned
from coterie.tasks.solver import Solver

try:
    check_machine()
except NotCompilableError as why:
    pytest.skip(str(why), allow_module_level=True)

from coterie.engines.compiled import objects
from coterie.engines.compiled.objects import HASH, machine
from coterie.engines.compiled.plan import Plan


def made(width: int = 3) -> Plan:
    return planned(Layout(nn.Sequential(nn.Linear(4, width))), (4,))


def lenet() -> Plan:
    net = nn.Sequential(
        *(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )
    return planned(Layout(net), (3, 32, 32))


def the_file(folder: Path) -> Path:
    [file] = folder.iterdir()
    return file


def test_code_is_compiled_once(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    first, new = machine(made(), folder)
    again, newer = machine(made(), folder)
    assert (new, newer) == (True, False)
    assert first.code == again.code
    assert the_file(folder).stat().st_mode & 0o077 == 0
    assert machine(made(5), folder)[1]
    assert len(list(folder.iterdir())) == 2


def test_the_name_tells_apart_all_that_code_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {objects.name(made()), objects.name(made(4)), objects.name(lenet())}
    other = AVX2 if check_machine() == AVX512 else AVX512
    monkeypatch.setattr(objects, "check_machine", lambda: other)
    names.add(objects.name(made()))
    monkeypatch.setattr(objects, "source", lambda: "other kernels")
    names.add(objects.name(made()))
    monkeypatch.setattr(objects, "version", lambda _: "another version")
    names.add(objects.name(made()))
    assert len(names) == 6


@pytest.mark.parametrize("spoil", ["one bit", "cut", "empty", "others may write", "a folder"])
def test_a_file_that_is_not_as_it_was_written_is_not_run(spoil: str, tmp_path: Path) -> None:
    code = machine(made(), tmp_path)[0].code
    file = the_file(tmp_path)
    content = file.read_bytes()
    match spoil:
        case "one bit":
            file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        case "cut":
            file.write_bytes(content[: len(content) // 2])
        case "empty":
            file.write_bytes(b"")
        case "others may write":
            file.chmod(0o666)
        case "a folder":
            file.unlink()
            file.mkdir()
    assert objects.kept(file) is None
    again, new = machine(made(), tmp_path)
    assert new
    assert again.code == code
    if spoil != "a folder":
        assert file.read_bytes() == content
        assert not machine(made(), tmp_path)[1]


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert machine(made(), blocked / "folder")[1]
    assert machine(made(), blocked / "folder")[1]


KILLED = """
import sys
from pathlib import Path
from coterie.engines.compiled import objects
from tests.engines.test_compiled_cache import made
real = objects.compiled
def told(*given):
    print("compiling", flush=True)
    return real(*given)
objects.compiled = told
for width in range(3, 10_000):
    objects.machine(made(width), Path(sys.argv[1]))
"""


def test_a_process_killed_while_it_compiles_leaves_a_cache_that_works(tmp_path: Path) -> None:
    for wait in (0.0, 0.02, 0.05, 0.11):
        with subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path)],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(wait)
            os.kill(process.pid, signal.SIGKILL)
    for file in tmp_path.glob("*.o"):
        assert objects.kept(file) is not None
    for width in (3, 4, 5):
        machine(made(width), tmp_path)
        assert not machine(made(width), tmp_path)[1]


def test_lenet_is_compiled_in_seconds_and_found_again_in_milliseconds(tmp_path: Path) -> None:
    plan = lenet()
    began = time.process_time()
    machine(plan, tmp_path)
    compiled = time.process_time()
    machine(plan, tmp_path)
    found = time.process_time()
    assert compiled - began < 5
    assert found - compiled < 0.05


def test_code_has_a_hash_before_it(tmp_path: Path) -> None:
    import hashlib

    code = machine(made(), tmp_path)[0].code
    content = the_file(tmp_path).read_bytes()
    assert content == hashlib.sha256(code).digest() + code
    assert len(content) == HASH + len(code)


@pytest.mark.parametrize("lack", ["llvmlite", "AVX2", "arm"])
def test_a_machine_that_cannot_says_what_it_lacks(
    lack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    match lack:
        case "llvmlite":
            monkeypatch.setattr(host, "find_spec", lambda _: None)
        case "AVX2":
            monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
        case "arm":
            monkeypatch.setattr(host.platform, "machine", lambda: "arm64")
    host.check_machine.cache_clear()
    layout = Layout(nn.Sequential(nn.Linear(4, 3)))
    clients = Population.of([(torch.zeros(4, 4), torch.zeros(4, dtype=torch.long))], 3)
    try:
        with pytest.raises(ConfigError, match=lack) as told:
            build("compiled", clients, layout, 0)
        assert told.value.code == "C054"
    finally:
        monkeypatch.undo()
        host.check_machine.cache_clear()


def test_llvmlite_that_cannot_be_loaded_is_told_unless_the_code_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    there, new = Layout(nn.Sequential(nn.Linear(4, 3))), Layout(nn.Sequential(nn.Linear(4, 2)))
    machine(planned(there, (4,)))
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    assert inner_engine(there, Solver(), (4,)) == ("compiled", "")
    assert not machine(planned(there, (4,)))[1]
    name, why = inner_engine(new, Solver(), (4,))
    assert name == "stacked"
    assert "not compiled: llvmlite cannot be loaded" in why
