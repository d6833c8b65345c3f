"""Tasks that check: what clients say of a proposal from samples that it was not made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from coterie.core.answers import LARGEST_LOSS, Form
from coterie.core.bounds import dataclass
from coterie.core.types import AnswerForm, Client, Known, Layout, Release, Reply, Sent
from coterie.tasks.halves import as_long, folds, halves, in_halves, trained_halves
from coterie.tasks.score import Score
from coterie.tasks.solver import Solver, trained
from coterie.tasks.steps import SteppedTask, Stepwise, logits
from coterie.tasks.train import Training

FOLDS = 5  # a model tuned on four fifths of few samples is nearly the one that is used


def sample_loss(row: Tensor, client: Client) -> Stepwise[Tensor]:
    """(samples,) float64: what a model loses on each of a client's samples."""
    return losses(client.y, (yield from logits(row, client.x)))


def losses(y: Tensor, said: Tensor) -> Tensor:
    """(samples,) float64: what these logits lose."""
    lost = cross_entropy(said.double(), y, reduction="none")
    return lost.nan_to_num(nan=LARGEST_LOSS).clamp(max=LARGEST_LOSS)


@dataclass(frozen=True)
class TrainHalves(Training, SteppedTask):
    """Train twice from the model sent, on the even and on the odd samples: (2, columns)."""

    upload: str = "head"  # the columns that are sent back

    @property
    def trainings(self) -> int:
        """One on each half."""
        return 2

    def answer_form(self, known: Known) -> AnswerForm:
        """Two rows of these columns."""
        return {"value": in_halves(known.layout.form(self.upload))}

    def spends(self, known: Known) -> Sequence[Release] | None:
        """One training: a sample is in one half, unless it is the only one there is."""
        if not self.solver.privacy.on:
            return None
        half = max(1, known.samples // 2)
        one = self.solver.release(half)._replace(times=self.solver.most_steps(known.samples))
        return [one] if known.samples > 1 else [one, one]

    def stepwise(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Stepwise[Reply]:
        """One training after the other."""
        rows = yield from trained_halves(self.solver, client, models, self.upload, layout, rng)
        return Reply(rows)


@dataclass(frozen=True)
class Gains(SteppedTask):
    """How much less each of the `others` sent loses than the model one holds: (j, 2).

    The mean over samples, and its standard error (paired, sample by sample); sent along, the loss
    of one's own. Without `adapt`, on all samples; with it, each model is judged as it would be
    used: on the odd samples, tuned on the even ones if that helps.
    """

    needed = False  # nobody moves, and no groups are taken, without an answer
    adapt: Solver | None = None  # how a model is tuned before use
    train: str = "head"  # the columns that tuning trains

    @property
    def trains(self) -> Solver | None:
        """The recipe of the tuning."""
        return self.adapt

    def answer_form(self, known: Known) -> AnswerForm:
        """A gain and its error for each."""
        most = LARGEST_LOSS
        shape = (len(known.sent["others"]), 2)
        return {
            "value": Form("float64", shape, (-most, 0.0), (most, most)),
            "extra.loss": Form("float64", (), 0, most),
        }

    def stepwise(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Stepwise[Reply]:
        """What each loses, sample by sample."""
        own = yield from self.losses(models, client, rng)
        saved = []
        for row in sent["others"]:
            saved.append(own - (yield from self.losses(row, client, rng)))
        d = torch.stack(saved)  # (j, samples)
        error = d.std(1, correction=0) / max(d.shape[1] - 1, 1) ** 0.5
        return Reply(torch.stack([d.mean(1), error], 1), {"loss": own.mean()})

    def losses(self, row: Tensor, client: Client, rng: torch.Generator) -> Stepwise[Tensor]:
        """(samples,) what a model loses on those by which it is judged."""
        if not self.adapt:
            return (yield from sample_loss(row, client))
        even, odd = halves(client)
        as_it_is = yield from sample_loss(row, odd)
        recipe = as_long(self.adapt, client)
        tuned, _ = yield from trained(recipe, even, row, rng, train=self.train)
        after = yield from sample_loss(tuned, odd)
        return after if after.mean() < as_it_is.mean() else as_it_is


@dataclass(frozen=True)
class VerifiedScore(Score):
    """Test the model a client holds, and what tuning makes of it: for long, or else a little.

    Long tuning does harm if on samples that it did not see it loses clearly more, or clearly fewer
    are right (a standard error), each part of them being judged after tuning on the others. The
    check leans against tuning: the model that is not tuned was trained on those samples in earlier
    rounds. So whoever fails it tunes for one epoch, unless that makes it worse even on what it
    tunes on.
    """

    def rows(
        self, client: Client, models: Tensor, layout: Layout, rng: torch.Generator
    ) -> Stepwise[list[Tensor]]:
        """(P,) for each stage."""
        row, *tuned = yield from super().rows(client, models, layout, rng)
        if not self.adapt or (yield from self.helps(row, client, self.adapt, rng)):
            return [row, *tuned]
        return [row, (yield from self.touched(row, client, self.adapt, rng))]

    def touched(
        self, row: Tensor, client: Client, adapt: Solver, rng: torch.Generator
    ) -> Stepwise[Tensor]:
        """(P,) the model after one epoch of tuning, or as it is if it loses more by that."""
        little = replace(adapt.unprotected, epochs=1, steps=0)
        tuned, _ = yield from trained(little, client, row, rng, train=self.train)
        before = yield from sample_loss(row, client)
        after = yield from sample_loss(tuned, client)
        return tuned if after.sum() <= before.sum() else row

    def helps(
        self, row: Tensor, client: Client, adapt: Solver, rng: torch.Generator
    ) -> Stepwise[bool]:
        """Whether tuning is no worse on what it did not see, as far as can be told."""
        if len(client) < 2:
            return False  # there is nothing else to see
        saved, righter = [], []
        for seen, unseen in folds(client, FOLDS):
            tuned, _ = yield from trained(adapt.unprotected, seen, row, rng, train=self.train)
            before = yield from logits(row, unseen.x)
            after = yield from logits(tuned, unseen.x)
            saved.append(losses(unseen.y, before) - losses(unseen.y, after))
            right, was = (said.argmax(1) == unseen.y for said in (after, before))
            righter.append(right.double() - was.double())
        d, r = torch.cat(saved), torch.cat(righter)
        error = d.std(correction=0) / (len(d) - 1) ** 0.5
        by_chance = r.abs().sum() ** 0.5  # of those that changed, if each is as likely to be lost
        return bool((d.mean() > -error) & (r.sum() >= -by_chance))
