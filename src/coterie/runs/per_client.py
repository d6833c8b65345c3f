"""One number for each client of a run, by the client's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from coterie.runs import metrics


@dataclass(frozen=True)
class PerClient:
    """One number per client.

    >>> accuracy = PerClient({"a": 0.5, "b": 1.0})
    >>> accuracy.mean(), accuracy.worst(), accuracy["b"]
    (0.75, 0.5, 1.0)
    """

    values: Mapping[str, float]

    def __getitem__(self, client: str | int) -> float:
        return self.values[str(client)]

    def __len__(self) -> int:
        return len(self.values)

    def mean(self) -> float:
        """The plain mean over clients."""
        return float(self._tensor().mean())

    def std(self) -> float:
        """The deviation over clients (population)."""
        return float(self._tensor().std(correction=0))

    def worst(self, share: float = 0.0) -> float:
        """The worst client, or the mean of the worst share of clients."""
        count = max(1, round(share * len(self)))
        return metrics.bottom_k(self._tensor(), count)

    def _tensor(self) -> torch.Tensor:
        return torch.tensor(list(self.values.values()), dtype=torch.float64)
