"""Local training with a turn of its own: what a client does when one descent is not all."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from coterie.core.answers import Form
from coterie.core.bounds import dataclass
from coterie.core.types import AnswerForm, Client, Known, Layout, Receives, Reply, Sent
from coterie.tasks.signature import Losses, sample_losses, whole
from coterie.tasks.solver import trained
from coterie.tasks.steps import SteppedTask, Stepwise
from coterie.tasks.train import Training, own_row


@dataclass(frozen=True)
class Choose(Losses, Training):
    """Take the model with the least loss on one's own training data, train it, and say which.

    With `heads`, the models differ in their heads alone, and the rest is sent once, as `body`.
    """

    def answer_form(self, known: Known) -> AnswerForm:
        """The trained model, and which it was."""
        return {"value": known.layout.form(), "extra.choice": Form("int64", (), 0, known.k - 1)}

    def stepwise(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Stepwise[Reply]:
        """Choose by training loss, the first among equals; then train."""
        rows = whole(models, sent, layout)
        choice = (yield from sample_losses(rows, client)).mean(0).argmin()
        w, _ = yield from trained(self.solver, client, rows[choice], rng)
        return Reply(w, {"choice": choice})


@dataclass(frozen=True)
class Pulled(Training, SteppedTask):
    """Train one's own model on, pulled to the `anchor` sent with the strength `prox` sent.

    The model is the client's: it remembers it, starts from it (at first the initial one, or the
    `start` sent), and sends it back.
    """

    receives: ClassVar[Receives] = "nothing"

    def stepwise(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Stepwise[Reply]:
        """Train, remember, send."""
        start = sent.get("start", own_row(client, models, "all", layout))
        pulled = replace(self.solver, prox=float(sent["prox"]))
        w, _ = yield from trained(pulled, client, start, rng, anchor=sent["anchor"])
        return Reply(w, keep={"private": w})
