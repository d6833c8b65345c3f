"""Whether code can be compiled here, and can run: asked without LLVM, which is slow to import."""

from __future__ import annotations

import platform
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch

from coterie.engines.chain import NotStackableError

ENOUGH = ("AVX2", "AVX512")  # what PyTorch calls a processor that has AVX2 and FMA


class NotCompilableError(NotStackableError):
    """Why a network is not compiled."""


@cache
def check_machine() -> None:
    """Raise `NotCompilableError` where the code could not be made, or could not run."""
    if find_spec("llvmlite") is None:
        raise NotCompilableError("llvmlite is not installed; pip install 'coterie[fast]'")
    if platform.machine().lower() not in ("x86_64", "amd64"):
        raise NotCompilableError(f"the kernels are for x86-64, and this is {platform.machine()}")
    if torch.backends.cpu.get_cpu_capability() not in ENOUGH:
        raise NotCompilableError("PyTorch finds no AVX2 and FMA in this processor")


def binding() -> Any:
    """LLVM, ready for this machine; `NotCompilableError` where it is there and cannot be loaded."""
    try:
        import llvmlite.binding as llvm
    except (ImportError, OSError) as cause:  # a part of it, or a library of the system, is missing
        raise NotCompilableError(f"llvmlite cannot be loaded: {cause}") from cause

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm
