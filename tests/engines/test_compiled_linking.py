"""Machine code in memory without LLVM: the same code, never writable, never guessed at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from coterie.core.layout import Layout
from coterie.engines.compiled.host import NotCompilableError, check_machine
from coterie.engines.compiled.planning import planned

try:
    check_machine()
except NotCompilableError as why:
    pytest.skip(str(why), allow_module_level=True)
if not sys.platform.startswith("linux"):
    pytest.skip("elsewhere LLVM links", allow_module_level=True)

from coterie.engines.compiled import objects
from coterie.engines.compiled.linking import (
    RELOCATION,
    RELOCATIONS,
    Linked,
    LinkedByLLVM,
    NotLinkableError,
    sections,
)
from coterie.engines.compiled.network import Gradients, Network
from coterie.engines.compiled.objects import Machine, compiled
from coterie.engines.compiled.plan import Plan
from coterie.engines.compiled.program import Program


def layered() -> Layout:
    torch.manual_seed(0)
    return Layout(
        nn.Sequential(
            *(nn.Conv2d(2, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 9, 3)),
            *(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(9, 12), nn.ReLU(), nn.Linear(12, 5)),
        )
    )


LAYOUT = layered()
PLAN: Plan = planned(LAYOUT, (2, 8, 8))
HERE = check_machine()
CODE = compiled(str(Program(PLAN, HERE)), HERE)


def gradient(machine: Machine) -> torch.Tensor:
    rng = torch.Generator().manual_seed(1)
    x, y = torch.randn(7, 2, 8, 8, generator=rng), torch.arange(7) % 5
    network = Network(PLAN, machine)
    net = Gradients(network, LAYOUT.initial, None, network.learns(None))
    net.gradient(x, y)
    return net.grad.clone()


def test_code_linked_here_is_the_code_that_llvm_links(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Machine(CODE, HERE)
    assert isinstance(mine.loaded, Linked)

    def another_format(code: bytes) -> Linked:
        raise NotLinkableError("another system's")

    monkeypatch.setattr(objects, "Linked", another_format)
    theirs = Machine(CODE, HERE)
    assert isinstance(theirs.loaded, LinkedByLLVM)
    assert gradient(mine).abs().sum() > 0
    assert torch.equal(gradient(mine), gradient(theirs))


def test_the_program_asks_for_something_to_be_filled_in() -> None:
    asked = [s for s in sections(CODE) if s.kind == RELOCATIONS]
    assert sum(len(s.content) // RELOCATION.size for s in asked) > 10  # or the test above is empty


def test_code_cannot_be_written_and_what_is_written_cannot_be_run() -> None:
    linked = Linked(CODE)
    start = linked.address("train")
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(end, 16) for end in line.split()[0].split("-"))
        if first <= start < last:
            assert line.split()[1] == "r-xp"
            return
    pytest.fail("the code is nowhere")


@given(st.integers(0, len(CODE) - 1))
def test_a_file_that_was_cut_is_left_to_llvm(length: int) -> None:
    with pytest.raises(NotLinkableError):
        Linked(CODE[:length])


@given(st.integers(0, 63), st.integers(0, 255))
def test_another_beginning_never_ends_in_another_error(place: int, byte: int) -> None:
    spoilt = bytearray(CODE)
    spoilt[place] = byte
    try:
        linked = Linked(bytes(spoilt))
    except NotLinkableError:
        return
    assert linked.functions.keys() >= objects.SIGNATURES.keys()  # what was spoilt does not matter


def spoilt(old: bytes, new: bytes) -> bytes:
    assert CODE.count(old) >= 1
    return CODE.replace(old, new)


def test_what_is_not_known_is_left_to_llvm() -> None:
    [asked] = [s for s in sections(CODE) if s.kind == RELOCATIONS and s.content]
    place, kind, symbol, addend = RELOCATION.unpack_from(asked.content)
    absolute = RELOCATION.pack(place, 1, symbol, addend)
    with pytest.raises(NotLinkableError, match="relocation 1 of"):
        Linked(spoilt(RELOCATION.pack(place, kind, symbol, addend), absolute))
    with pytest.raises(NotLinkableError, match="of memsex"):
        Linked(spoilt(b"\0memset\0", b"\0memsex\0"))


CACHED = """
import sys
from pathlib import Path
import torch
from torch import nn
from coterie.core.layout import Layout
from coterie.data.population import Population
from coterie.engines import build
layout = Layout(nn.Sequential(nn.Linear(4, 3)))
clients = Population.of([(torch.rand(4, 4), torch.arange(4) % 3)], 3)
build("compiled", clients, layout, 0)
print("llvmlite" in sys.modules)
"""


def test_who_finds_its_code_in_the_cache_does_not_import_llvm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    said = [
        subprocess.run(
            [sys.executable, "-c", CACHED], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert said == ["True\n", "False\n"]
