"""Local training with a turn of its own: what a client does when one descent is not all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from coterie.core.bounds import dataclass
from coterie.core.client import Client
from coterie.core.layout import Layout
from coterie.core.types import Receives, Reply
from coterie.tasks.signature import sample_losses, whole
from coterie.tasks.solver import Solver, own_row
from coterie.tasks.steps import SteppedTask, Stepwise


@dataclass(frozen=True)
class Choose(SteppedTask):
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

    def stepwise(
        self,
        client: Client,
        models: Tensor,
        sent: Mapping[str, Tensor],
        layout: Layout,
        rng: torch.Generator,
    ) -> Stepwise[Reply]:
        """Choose by training loss, the first among equals; then train."""
        rows = whole(models, sent, layout)
        choice = (yield from sample_losses(rows, client)).mean(0).argmin()
        w, _ = yield from self.solver.trained(client, rows[choice], rng)
        return Reply(w, {"choice": choice})


@dataclass(frozen=True)
class Pulled(SteppedTask):
    """Train one's own model on, pulled to the `anchor` sent with the strength `prox` sent.

    The model is the client's: it remembers it, starts from it (at first the initial one, or the
    `start` sent), and sends it back.
    """

    receives: ClassVar[Receives] = "nothing"
    solver: Solver = Solver()

    def stepwise(
        self,
        client: Client,
        models: Tensor,
        sent: Mapping[str, Tensor],
        layout: Layout,
        rng: torch.Generator,
    ) -> Stepwise[Reply]:
        """Train, remember, send."""
        start = sent.get("start", own_row(client, models, "all", layout))
        pulled = replace(self.solver, prox=float(sent["prox"]))
        w, _ = yield from pulled.trained(client, start, rng, anchor=sent["anchor"])
        return Reply(w, keep={"private": w})
