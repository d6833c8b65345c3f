"""Whether code can be compiled here, and can run: asked without LLVM, which is slow to import."""

from __future__ import annotations

import platform
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch

from coterie.engines.chain import NotStackableError


class Processor(NamedTuple):
    """What code is written for. It runs as well where vectors are longer, and gives the same."""

    name: str  # LLVM's
    lanes: int  # numbers in a register
    registers: int

    def registers_of(self, lanes: int) -> int:
        """How many vectors of so many numbers fit."""
        return self.registers // max(1, lanes // self.lanes)


AVX2 = Processor("x86-64-v3", 8, 16)
AVX512 = Processor("x86-64-v4", 16, 32)
PROCESSORS = {"AVX2": AVX2, "AVX512": AVX512}  # by what PyTorch calls them


class NotCompilableError(NotStackableError):
    """Why a network is not compiled."""


@cache
def check_machine() -> Processor:
    """The processor here; `NotCompilableError` where code could not be made, or could not run."""
    if find_spec("llvmlite") is None:
        raise NotCompilableError("llvmlite is not installed; pip install 'coterie[fast]'")
    if platform.machine().lower() not in ("x86_64", "amd64"):
        raise NotCompilableError(f"the kernels are for x86-64, and this is {platform.machine()}")
    found = PROCESSORS.get(torch.backends.cpu.get_cpu_capability())
    if found is None:
        raise NotCompilableError("PyTorch finds no AVX2 and FMA in this processor")
    return found


def binding() -> Any:
    """LLVM, ready for this machine; `NotCompilableError` where it is there and cannot be loaded."""
    try:
        import llvmlite.binding as llvm
    except (ImportError, OSError) as cause:  # a part of it, or a library of the system, is missing
        raise NotCompilableError(f"llvmlite cannot be loaded: {cause}") from cause

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm
