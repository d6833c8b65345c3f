"""What a client can reveal so that it can be placed: small, named, and nothing more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from coterie.bounds import Count
from coterie.client import Client
from coterie.distance import trajectory
from coterie.layout import Layout
from coterie.types import Receives, Reply, Task


@dataclass(frozen=True)
class Histogram(Task):
    """How many training samples of each class the client holds: (classes,)."""

    receives: ClassVar[Receives] = "nothing"
    classes: Count = 2

    def __call__(
        self,
        client: Client,
        models: Tensor,
        sent: Mapping[str, Tensor],
        layout: Layout,
        rng: torch.Generator,
    ) -> Reply:
        """Count."""
        return Reply(torch.bincount(client.y, minlength=self.classes).float())


@dataclass(frozen=True)
class Trajectory(Task):
    """The pull and push forces on the classifier, averaged over its coordinates: (2, classes).

    One forward pass in evaluation mode, and 2 C numbers.
    """

    normalise: bool = True  # divide by the number of samples

    def __call__(
        self,
        client: Client,
        models: Tensor,
        sent: Mapping[str, Tensor],
        layout: Layout,
        rng: torch.Generator,
    ) -> Reply:
        """One forward pass."""
        features, logits = layout.features(models, client.x)
        return Reply(trajectory(features, logits.softmax(1), client.y, self.normalise))


def spread(D: Tensor, clients: Tensor, n: int) -> Tensor:
    """(n, n): the distances of those who answered, NaN for whoever did not."""
    full = D.new_full((n, n), float("nan"))
    full[clients[:, None], clients] = D
    return full
