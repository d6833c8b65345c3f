"""What all tests share: one thread, which suits small tensors, and the real data if it is there."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from coterie.__main__ import PATIENCE

torch.set_num_threads(1)
gc.set_threshold(*PATIENCE)  # as the commands have it: what PyTorch brought with it stays
# The same examples every time, and no deadline: a busy machine must not make a test fail.
settings.register_profile("coterie", deadline=None, derandomize=True)
settings.load_profile("coterie")

SIBLING = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture
def real_data(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the real image sets; tests that want them are skipped by name without it."""
    folder = Path(os.environ.get("COTERIE_DATA", SIBLING))
    if not (folder / "fashion_mnist.npz").exists():
        pytest.skip("no fashion_mnist.npz: set COTERIE_DATA to a folder with the real image sets")
    monkeypatch.setenv("COTERIE_DATA", str(folder))
    return folder


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Tells the scorecard a number: `figure("crash points", 120)`.

    Those of one name are added up over all tests of a row, or the `most` or the `least` is taken.
    """

    def tell(name: str, value: float | str, by: str = "sum") -> None:
        by = "last" if isinstance(value, str) else by
        record_property("figure", json.dumps({"name": name, "value": value, "by": by}))

    return tell
