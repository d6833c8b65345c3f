"""The profile of a compiled step, which nothing else runs."""

from __future__ import annotations

import pytest

from coterie.engines.compiled.host import NotCompilableError, check_machine

try:
    check_machine()
except NotCompilableError as why:
    pytest.skip(f"not compiled on this machine: {why}", allow_module_level=True)

from bench.steps import measure
from bench.workloads import WORKLOADS


def test_every_kernel_of_a_step_is_timed() -> None:
    step, kernels = measure(WORKLOADS["W3"], repeat=2)
    assert {"gather", "forward1", "loss", "weights1", "bias1"} <= set(kernels)
    assert step > 0
    assert kernels["forward1"] > 0
