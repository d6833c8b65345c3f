"""Local training with a turn of its own: what a client does when one descent is not all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from coterie.client import Client
from coterie.layout import Layout
from coterie.signature import sample_losses, whole
from coterie.solver import Solver, own_row
from coterie.types import Receives, Reply, Task


@dataclass(frozen=True)
class Choose(Task):
    """Take the model with the least loss on one's own training data, train it, and say which.

    With `heads`, the models differ in their heads alone, and the rest is sent once, as `body`.
    """

    receives: ClassVar[Receives] = "all"
    solver: Solver = Solver()
    heads: bool = False  # only the heads travel k times

    @property
    def download(self) -> str:
        """Every model, or every head."""
        return "head" if self.heads else "all"

    def __call__(
        self,
        client: Client,
        models: Tensor,
        sent: Mapping[str, Tensor],
        layout: Layout,
        rng: torch.Generator,
    ) -> Reply:
        """Choose by training loss, the first among equals; then train."""
        rows = whole(models, sent, layout)
        choice = sample_losses(rows, client, layout).mean(0).argmin()
        w, _ = self.solver.descend(client, rows[choice], layout, rng)
        return Reply(w, {"choice": choice})


@dataclass(frozen=True)
class Pulled(Task):
    """Train one's own model on, pulled to the `anchor` sent with the strength `prox` sent.

    The model is the client's: it remembers it, starts from it (at first the initial one, or the
    `start` sent), and sends it back.
    """

    receives: ClassVar[Receives] = "nothing"
    solver: Solver = Solver()

    def __call__(
        self,
        client: Client,
        models: Tensor,
        sent: Mapping[str, Tensor],
        layout: Layout,
        rng: torch.Generator,
    ) -> Reply:
        """Train, remember, send."""
        start = sent.get("start", own_row(client, models, "all", layout))
        pulled = replace(self.solver, prox=float(sent["prox"]))
        w, _ = pulled.descend(client, start, layout, rng, anchor=sent["anchor"])
        return Reply(w, keep={"private": w})
