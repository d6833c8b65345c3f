"""What would be compiled for a network, and why not; LLVM need not be installed to ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from coterie.core.layout import Layout
from coterie.engines.chain import chain
from coterie.engines.compiled.host import NotCompilableError, binding, check_machine

if TYPE_CHECKING:
    from coterie.engines.compiled.plan import Plan


def planned(layout: Layout, sample: tuple[int, ...]) -> Plan:
    """What would be compiled for a network here; `NotStackableError` says why if it cannot be."""
    if layout.dtype != torch.float32:
        raise NotCompilableError(f"its numbers are {layout.dtype}, not float32")
    layers = chain(layout)
    check_machine()
    from coterie.engines.compiled.objects import file_of
    from coterie.engines.compiled.plan import plan

    made = plan(layers, sample, layout.size)
    if not file_of(made).exists():  # who finds its code there needs no LLVM
        binding()
    return made
