"""Whether code can be compiled here, and can run. Nothing here needs LLVM to be installed."""

from __future__ import annotations

import platform
from functools import cache
from importlib.util import find_spec
from typing import Any

from coterie.engines.chain import NotStackableError

NEEDS = ("avx2", "fma")


class NotCompilableError(NotStackableError):
    """Why a network is not compiled."""


@cache
def check_machine() -> None:
    """Raise `NotCompilableError` where the code could not be made, or could not run."""
    if find_spec("llvmlite") is None:
        raise NotCompilableError("llvmlite is not installed; pip install 'coterie[fast]'")
    if platform.machine().lower() not in ("x86_64", "amd64"):
        raise NotCompilableError(f"the kernels are for x86-64, and this is {platform.machine()}")
    llvm = binding()
    features = llvm.get_host_cpu_features()
    missing = [name for name in NEEDS if not features.get(name)]
    if missing:
        raise NotCompilableError(f"the processor lacks {' and '.join(missing)}")


def binding() -> Any:
    """LLVM, ready for this machine."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm
