"""How a client is tested: accuracy and loss on its own test set, before and after adaptation."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from coterie.core.bounds import dataclass
from coterie.core.types import (
    VALIDATION,
    AnswerForm,
    Client,
    Evaluation,
    Known,
    Layout,
    Receives,
    Recipe,
    Reply,
    Sent,
    Task,
)
from coterie.tasks.solver import Solver, trained
from coterie.tasks.steps import SteppedTask, Stepwise, logits
from coterie.tasks.train import own_row


def accuracy_and_loss(logits: Tensor, y: Tensor) -> Tensor:
    """(2,) float64: the share of a client's test samples that are right, and their mean loss.

    Both are NaN for a client without test samples: it has no accuracy, which is not accuracy 0.
    """
    right = (logits.argmax(1) == y).double().mean()
    return torch.stack([right, F.cross_entropy(logits, y).double()])


class Showing(SteppedTask, Evaluation):
    """A test that can show what its models say: all metrics are computed from that."""

    @abstractmethod
    def said(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Stepwise[list[tuple[Tensor, Tensor]]]:
        """For each stage, logits (N, K) and the labels (N,) that they are about."""

    def stepwise(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Stepwise[Reply]:
        """Test on the client."""
        said = yield from self.said(client, models, sent, layout, rng)
        return Reply(torch.stack([accuracy_and_loss(*one) for one in said]))

    def validated(self) -> Showing:
        """The same test, done once more on the samples that the client holds back."""
        return Validated(self)


class Around(SteppedTask, Evaluation):
    """A test that makes more of another one, and needs what that one needs."""

    score: Showing

    @property
    def trains(self) -> Recipe | None:
        """The recipe of the adaptation."""
        return self.score.trains

    @property
    def receives(self) -> Receives:  # type: ignore[override]
        """The models that the test needs."""
        return self.score.receives

    @property
    def download(self) -> str:
        """What the test needs."""
        return self.score.download

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of the rows of the reply."""
        return self.score.stages

    @property
    def private(self) -> str:
        """The columns that each client has of its own."""
        return self.score.private

    @property
    def train(self) -> str:
        """The columns that adaptation trains."""
        return self.score.train

    @property
    def held(self) -> Task:
        """The question for the model of the last stage."""
        return self.score.held


@dataclass(frozen=True)
class Validated(Around, Showing):
    """Another test, and its last stage once more on the samples that the client holds back."""

    score: Showing

    @property
    def stages(self) -> tuple[str, ...]:
        """Those of the test, and that of validation."""
        return (*self.score.stages, VALIDATION)

    def said(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Stepwise[list[tuple[Tensor, Tensor]]]:
        """Both times with the same draws, hence of the same models."""
        draws = rng.get_state()
        tests = yield from self.score.said(client, models, sent, layout, rng)
        rng.set_state(draws)
        x = client.x_val if len(client.y_val) else client.x[:0]
        other = replace(client, x_test=x, y_test=client.y_val)
        held = yield from self.score.said(other, models, sent, layout, rng)
        return [*tests, held[-1]]


@dataclass(frozen=True)
class Score(Showing):
    """Test the model a client holds; with `adapt`, also what becomes of it after local training.

    The reply is (stages, 2): a row (accuracy, loss) for each stage, NaN without samples for it.
    Adaptation happens on a copy and is forgotten: a metric never trains.
    """

    adapt: Solver | None = None  # local training before the second test
    private: str = "none"  # the columns that each client has of its own
    train: str = "all"  # the columns that adaptation trains
    validation: bool = False  # also test the last model on the samples that the client holds back

    @property
    def trains(self) -> Solver | None:
        """The recipe of the adaptation."""
        return self.adapt

    @property
    def download(self) -> str:
        """Everything the client does not hold itself."""
        return f"~{self.private}"

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of the rows of the reply."""
        tests = ("before", "after") if self.adapt else ("before",)
        return (*tests, VALIDATION) if self.validation else tests

    def validated(self) -> Score:
        """The same test with the stage of validation."""
        return replace(self, validation=True)

    @property
    def held(self) -> Held:
        """The question for the model of the last stage."""
        return Held(self)

    def said(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Stepwise[list[tuple[Tensor, Tensor]]]:
        """What the model of each stage says to the samples that it is tested on."""
        rows = yield from self.rows(client, models, layout, rng)
        tests = [(row, client.x_test, client.y_test) for row in rows]
        if self.validation:
            x = client.x_val if len(client.y_val) else client.x[:0]
            tests.append((rows[-1], x, client.y_val))
        stages = []
        for row, x, y in tests:
            answer = yield from logits(row, x)
            stages.append((answer, y))
        return stages

    def rows(
        self, client: Client, models: Tensor, layout: Layout, rng: torch.Generator
    ) -> Stepwise[list[Tensor]]:
        """(P,) for each stage: what the client holds, and what its adaptation makes of it."""
        rows = [own_row(client, models, self.private, layout)]
        if self.adapt:
            own = self.adapt.unprotected  # what is adapted stays with the client
            adapted, _ = yield from trained(own, client, rows[0], rng, train=self.train)
            rows.append(adapted)
        return rows


@dataclass(frozen=True)
class Held(SteppedTask):
    """The very model that `score` tests last, for whoever owns the client: (P,)."""

    score: Score = Score()

    @property
    def trains(self) -> Solver | None:
        """The recipe of the adaptation before the last test."""
        return self.score.adapt

    @property
    def download(self) -> str:
        """What the test needs."""
        return self.score.download

    def answer_form(self, known: Known) -> AnswerForm:
        """One model."""
        return {"value": known.layout.form()}

    def stepwise(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Stepwise[Reply]:
        """Adapt as the test does, and send the result instead of its scores."""
        rows = yield from self.score.rows(client, models, layout, rng)
        return Reply(rows[-1])
