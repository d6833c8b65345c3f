"""What a server knows of whom it asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from coterie.core.layout import Layout


class Known(NamedTuple):
    """What a server knows of whom it asks: enough to say what the answer may be."""

    layout: Layout
    k: int  # models that there are
    classes: int
    samples: int  # the client trains on, as it declared when it came
    sent: Mapping[str, Tensor] = {}  # beside the model, to this client

    @property
    def kind(self) -> str:
        """The name of the kind of number that a model is made of."""
        return self.layout.form("none").dtype
