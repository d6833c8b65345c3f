"""What a client can reveal so that it can be placed: small, named, and nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from coterie.core.answers import LARGEST_LOSS, Form
from coterie.core.bounds import Count, Part, dataclass
from coterie.core.types import (
    AnswerForm,
    Client,
    Known,
    Layout,
    Receives,
    Release,
    Reply,
    Sent,
    Task,
)
from coterie.tasks.private import Privacy
from coterie.tasks.steps import SteppedTask, Stepwise, logits
from coterie.words.affinity import importance
from coterie.words.distance import basis, trajectory

ROUNDING = 1e-3  # by how much a number may leave its bounds that was rounded on its way


@dataclass(frozen=True)
class Histogram(Task):
    """How many training samples of each class the client holds: (classes,)."""

    receives: ClassVar[Receives] = "nothing"
    classes: Count = 2
    privacy: Privacy = Privacy()  # noise on each count, which a sample changes by one

    def answer_form(self, known: Known) -> AnswerForm:
        """A count for each class, all samples together; under noise no whole numbers."""
        n = known.samples
        if self.privacy.on:
            total = (n * (1 - ROUNDING), n * (1 + ROUNDING))
            return {"value": Form("float32", (self.classes,), 0, total[1], total=total)}
        return {"value": Form("float32", (self.classes,), 0, n, whole=True, total=(n, n))}

    def __call__(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Reply:
        """Count."""
        counts = torch.bincount(client.y, minlength=self.classes).float()
        if not self.privacy.on:
            return Reply(counts)
        noise = torch.randn(counts.shape, generator=rng)
        return Reply(proportions(counts + self.privacy.noise * noise, len(client)))

    def spends(self, known: Known) -> Sequence[Release] | None:
        """One release of all samples: a sample changes one count by one."""
        return [Release(1.0, self.privacy.noise, 1)] if self.privacy.on else None


@dataclass(frozen=True)
class Trajectory(Task):
    """The pull and push forces on the classifier, averaged over its coordinates: (2, classes).

    One forward pass in evaluation mode, and 2 C numbers.
    """

    normalise: bool = True  # divide by the number of samples
    privacy: Privacy = Privacy()  # noise on the sum over samples, each shortened to `clip`

    def answer_form(self, known: Known) -> AnswerForm:
        """Two forces for each class."""
        return {"value": Form(known.kind, (2, known.classes))}

    def __call__(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Reply:
        """One forward pass."""
        features, logits = layout.features(models, client.x)
        if not logits.isfinite().all():  # such an answer is left out, by the client's name
            return Reply(logits.new_full((2, logits.shape[1]), float("nan")))
        if not self.privacy.on:
            return Reply(trajectory(features, logits.softmax(1), client.y, self.normalise))
        each = sample_forces(features, logits.softmax(1), client.y)  # (n, 2 C)
        Z = self.privacy.blurred(each, rng).view(2, -1)
        return Reply(Z / max(len(client), 1) if self.normalise else Z)

    def spends(self, known: Known) -> Sequence[Release] | None:
        """One release of all samples."""
        return [Release(1.0, self.privacy.noise, 1)] if self.privacy.on else None


@dataclass(frozen=True)
class Basis(Task):
    """The leading left singular vectors of the client's (features x samples) data: (features, p).

    Nothing is sent down, p times as many numbers as a sample has come up; they show what the
    client's samples look like.
    """

    receives: ClassVar[Receives] = "nothing"
    p: Count = 3  # how many vectors

    def answer_form(self, known: Known) -> AnswerForm:
        """Vectors of length one, as long as a sample."""
        return {"value": Form(known.kind, (None, self.p), -1 - ROUNDING, 1 + ROUNDING)}

    def __call__(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Reply:
        """One singular value decomposition."""
        return Reply(basis(client.x.flatten(1).T, self.p))


@dataclass(frozen=True)
class Sparsity(Task):
    """How often each channel of a layer is silent on the client's data: (channels,) in [0, 1].

    The share of numbers that are zero after ReLU, over samples and places. A layer before its ReLU
    gives the same: what is not positive becomes zero.
    """

    layer: str = "head"  # head: what enters the head; else the layer whose outputs are looked at

    def answer_form(self, known: Known) -> AnswerForm:
        """A share for each channel."""
        return {"value": Form(known.kind, (None,), 0, 1 + ROUNDING)}

    def __call__(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Reply:
        """One forward pass."""
        if self.layer == "head":
            a, _ = layout.features(models, client.x)
        else:
            a = layout.outputs(models, client.x, self.layer)
        beside = [d for d in range(a.ndim) if d != 1]  # samples and places
        return Reply((a <= 0).to(models.dtype).mean(beside))


@dataclass(frozen=True)
class Losses(SteppedTask):
    """The mean loss of each model on the client's training data: (k,).

    With `heads`, the models differ in their heads alone, and the rest is sent once, as `body`.
    """

    receives: ClassVar[Receives] = "all"
    heads: bool = False  # only the heads travel k times

    @property
    def download(self) -> str:
        """Every model, or every head."""
        return "head" if self.heads else "all"

    def answer_form(self, known: Known) -> AnswerForm:
        """A loss for each model."""
        return {"value": Form(known.kind, (known.k,), 0, 2 * LARGEST_LOSS)}

    def stepwise(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Stepwise[Reply]:
        """A forward pass through each."""
        losses = yield from sample_losses(whole(models, sent, layout), client)
        return Reply(losses.mean(0))


@dataclass(frozen=True)
class Importance(SteppedTask):
    """The share of the client's samples that each model fits best, never below `floor`: (k,)."""

    receives: ClassVar[Receives] = "all"
    floor: Part = 1e-4  # what every model gets at least

    def answer_form(self, known: Known) -> AnswerForm:
        """A share for each model; together everything, and at most the floors more."""
        total = (1 - ROUNDING, 1 + known.k * self.floor + ROUNDING)
        low = self.floor * (1 - ROUNDING)
        return {"value": Form(known.kind, (known.k,), low, 1 + ROUNDING, total=total)}

    def stepwise(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Stepwise[Reply]:
        """A forward pass through each."""
        losses = yield from sample_losses(models, client)
        return Reply(importance(losses, self.floor).to(models.dtype))


def sample_forces(features: Tensor, probs: Tensor, labels: Tensor) -> Tensor:
    """(s, 2 C) what each sample by itself adds to the summed trajectory.

    >>> v, p = torch.tensor([[2.0, 4.0]]), torch.tensor([[0.25, 0.75]])
    >>> sample_forces(v, p, torch.tensor([0])).tolist()
    [[2.25, 0.0, 0.0, 2.25]]
    """
    own = torch.zeros_like(probs).scatter_(1, labels[:, None], 1)
    strength = torch.stack([own * (1 - probs), (1 - own) * probs], 1)  # (s, 2, C)
    return (strength * features.mean(1)[:, None, None]).flatten(1)


def proportions(counts: Tensor, n: int) -> Tensor:
    """(C,) counts that are not negative and sum up to n, as near to these as cutting makes them."""
    kept = counts.clamp(min=0)
    total = float(kept.sum())
    return kept * (n / total) if total > 0 else torch.full_like(kept, n / len(kept))


def whole(models: Tensor, sent: Sent, layout: Layout) -> Tensor:
    """(k, P) the models that were sent, put together where only their heads came k times."""
    if "body" not in sent:
        return models
    rows = models.new_empty(len(models), layout.size)
    rows[:, layout.columns("head")] = models
    rows[:, layout.columns("~head")] = sent["body"]
    return rows


def sample_losses(models: Tensor, client: Client) -> Stepwise[Tensor]:
    """(samples, k) the loss of each model on each of the client's training samples.

    A loss that is no number is a very large one: nobody chooses such a model.
    """
    each = []
    for row in models:
        said = yield from logits(row, client.x)
        each.append(cross_entropy(said, client.y, reduction="none"))
    return torch.stack(each, 1).nan_to_num(nan=LARGEST_LOSS).clamp(max=LARGEST_LOSS)
