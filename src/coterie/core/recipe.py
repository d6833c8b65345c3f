"""How long a client trains, as an engine must know it beforehand."""

from __future__ import annotations

from typing import Protocol


class Recipe(Protocol):
    """How long a client trains: what an engine must know beforehand to share the work out."""

    @property
    def epochs(self) -> int:
        """Passes over the client's data."""

    @property
    def steps(self) -> int:
        """If not 0, this many mini-batches instead of epochs."""

    @property
    def batch(self) -> int:
        """Samples in a mini-batch; 0: all data at once."""
