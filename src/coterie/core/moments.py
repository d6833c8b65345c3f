"""Moments: what a state remembers of each of its models beside the model itself, row by row."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

MOMENT = "moment_"  # what the names of such memories begin with


def without_moments(memory: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The memory of a state whose models are others now."""
    return {name: t for name, t in memory.items() if not name.startswith(MOMENT)}
