"""What a client can reveal so that it can be placed: small, named, and nothing more."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from coterie.core.answers import LARGEST_LOSS, Form
from coterie.core.bounds import Count, Part, dataclass
from coterie.core.types import AnswerForm, Client, Known, Layout, Receives, Reply, Sent, Task
from coterie.tasks.steps import SteppedTask, Stepwise, logits
from coterie.words.affinity import importance
from coterie.words.distance import basis, trajectory

ROUNDING = 1e-3  # by how much a number may leave its bounds that was rounded on its way


@dataclass(frozen=True)
class Histogram(Task):
    """How many training samples of each class the client holds: (classes,)."""

    receives: ClassVar[Receives] = "nothing"
    classes: Count = 2

    def answer_form(self, known: Known) -> AnswerForm:
        """A count for each class, all samples together."""
        n = known.samples
        return {"value": Form("float32", (self.classes,), 0, n, whole=True, total=(n, n))}

    def __call__(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Reply:
        """Count."""
        return Reply(torch.bincount(client.y, minlength=self.classes).float())


@dataclass(frozen=True)
class Trajectory(Task):
    """The pull and push forces on the classifier, averaged over its coordinates: (2, classes).

    One forward pass in evaluation mode, and 2 C numbers.
    """

    normalise: bool = True  # divide by the number of samples

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
        return Reply(trajectory(features, logits.softmax(1), client.y, self.normalise))


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
