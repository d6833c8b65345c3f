"""How a client is tested: accuracy and loss on its own test set, before and after adaptation."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn import functional as F

from coterie.client import Client
from coterie.layout import Layout
from coterie.solver import Solver, own_row
from coterie.types import Reply, Task


def accuracy_and_loss(row: Tensor, client: Client, layout: Layout) -> Tensor:
    """(2,) float64: the share of the client's test samples that are right, and their mean loss.

    Both are NaN for a client without test samples: it has no accuracy, which is not accuracy 0.
    """
    logits = layout.predict(row, client.x_test)
    right = (logits.argmax(1) == client.y_test).double().mean()
    return torch.stack([right, F.cross_entropy(logits, client.y_test).double()])


@dataclass(frozen=True)
class Score(Task):
    """Test the model a client holds; with `adapt`, also what becomes of it after local training.

    The reply is (stages, 2): a row (accuracy, loss) for each stage. Adaptation happens on a copy
    and is forgotten: a metric never trains.
    """

    adapt: Solver | None = None  # local training before the second test
    private: str = "none"  # the columns that each client has of its own

    @property
    def download(self) -> str:
        """Everything the client does not hold itself."""
        return f"~{self.private}"

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of the rows of the reply."""
        return ("before", "after") if self.adapt else ("before",)

    def __call__(
        self,
        client: Client,
        models: Tensor,
        sent: Mapping[str, Tensor],
        layout: Layout,
        rng: torch.Generator,
    ) -> Reply:
        """Test on the client."""
        rows = self.rows(client, models, layout, rng)
        return Reply(torch.stack([accuracy_and_loss(row, client, layout) for row in rows]))

    def rows(
        self, client: Client, models: Tensor, layout: Layout, rng: torch.Generator
    ) -> list[Tensor]:
        """(P,) for each stage: what the client holds, and what its adaptation makes of it."""
        rows = [own_row(client, models, self.private, layout)]
        if self.adapt:
            rows.append(self.adapt.descend(client, rows[0], layout, rng)[0])
        return rows


@dataclass(frozen=True)
class Held(Task):
    """The very model that `score` tests last, for whoever owns the client: (P,)."""

    score: Score = Score()

    @property
    def download(self) -> str:
        """As for the test."""
        return self.score.download

    def __call__(
        self,
        client: Client,
        models: Tensor,
        sent: Mapping[str, Tensor],
        layout: Layout,
        rng: torch.Generator,
    ) -> Reply:
        """Make it again."""
        return Reply(self.score.rows(client, models, layout, rng)[-1])
