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
from coterie.core.types import AnswerForm, Receives, Reply
from coterie.tasks.signature import sample_losses, whole
from coterie.tasks.solver import Solver, trained
from coterie.tasks.steps import SteppedTask, Stepwise
from coterie.tasks.train import own_row


@dataclass(frozen=True)
class Choose(SteppedTask):
    """Take the model with the least loss on one's own training data, train it, and say which.

    With `heads`, the models differ in their heads alone, and the rest is sent once, as `body`.
    """

    receives: ClassVar[Receives] = "all"
    solver: Solver = Solver()
    heads: bool = False  # only the heads travel k times

    @property
    def trains(self) -> Solver:
        """The recipe for the model that was chosen."""
        return self.solver

    @property
    def download(self) -> str:
        """Every model, or every head."""
        return "head" if self.heads else "all"

    def answer_form(self, layout: Layout) -> AnswerForm:
        """The trained model, and which it was."""
        return {"value": layout.form(), "extra.choice": ("int64", ())}

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
        w, _ = yield from trained(self.solver, client, rows[choice], rng)
        return Reply(w, {"choice": choice})


@dataclass(frozen=True)
class Pulled(SteppedTask):
    """Train one's own model on, pulled to the `anchor` sent with the strength `prox` sent.

    The model is the client's: it remembers it, starts from it (at first the initial one, or the
    `start` sent), and sends it back.
    """

    receives: ClassVar[Receives] = "nothing"
    solver: Solver = Solver()

    @property
    def trains(self) -> Solver:
        """The recipe, without its pull: how strong it is, is sent."""
        return self.solver

    def answer_form(self, layout: Layout) -> AnswerForm:
        """The trained model."""
        return {"value": layout.form()}

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
        w, _ = yield from trained(pulled, client, start, rng, anchor=sent["anchor"])
        return Reply(w, keep={"private": w})
