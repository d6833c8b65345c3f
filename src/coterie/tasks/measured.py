"""A test that sends further metrics beside accuracy and loss: each client computes its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from coterie.core.answers import LARGEST_LOSS, Form
from coterie.core.bounds import dataclass
from coterie.core.errors import ConfigError
from coterie.core.metric_names import CLASSES, METRICS, numbers, objections
from coterie.core.suggest import similar
from coterie.core.types import (
    AnswerForm,
    Client,
    Evaluation,
    Known,
    Layout,
    Reply,
    Sent,
)
from coterie.tasks import scoring
from coterie.tasks.score import Around, Score, Showing, accuracy_and_loss
from coterie.tasks.steps import Stepwise

MOST = 2.0**40  # samples of one class that a client may be tested on


@dataclass(frozen=True)
class Measured(Around):
    """Another test, and further metrics of what its models say.

    The reply is that of `score`, and beside it `numbers` (stages, m), NaN where a metric cannot be
    told of this client, and `classes` (stages, 2, K), how many of each class are right and wrong.
    """

    score: Showing = Score()
    metrics: tuple[str, ...] = ()

    @property
    def code(self) -> tuple[str, ...]:
        """The functions of one's own that it calls."""
        return tuple(name for name in self.metrics if ":" in name)

    def answer_form(self, known: Known) -> AnswerForm:
        """Every metric of coterie's is a share; a function of one's own may give any number."""
        forms, stages = dict(self.score.answer_form(known)), len(self.stages)
        if names := numbers(self.metrics):
            low, high = zip(*(BOUNDS[":" in name] for name in names), strict=True)
            forms["extra.numbers"] = Form("float64", (stages, len(names)), low, high, gaps=True)
        if CLASSES in self.metrics:
            forms["extra.classes"] = Form("int64", (stages, 2, known.classes), 0, MOST)
        return forms

    def stepwise(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Stepwise[Reply]:
        """Test, and measure what was said."""
        said = yield from self.score.said(client, models, sent, layout, rng)
        names, extra = numbers(self.metrics), {}
        if names:
            table = [[scoring.measure(name, *one) for name in names] for one in said]
            extra["numbers"] = torch.tensor(table, dtype=torch.float64)
        if CLASSES in self.metrics:
            extra["classes"] = torch.stack([scoring.class_counts(*one) for one in said])
        return Reply(torch.stack([accuracy_and_loss(*one) for one in said]), extra)


BOUNDS = {False: (0.0, 1.0), True: (-LARGEST_LOSS, LARGEST_LOSS)}  # coterie's, and one's own


def measured(score: Evaluation, metrics: Sequence[str]) -> Evaluation:
    """The test that measures these metrics, too; the very same one where there are none."""
    if not metrics:
        return score
    if not isinstance(score, Showing):
        raise ConfigError(
            f"{type(score).__name__} tests by accuracy and loss alone",
            code="C039",
            why="further metrics are computed from what a model says to each test sample, and this "
            "test does not show it",
            fix="derive it from coterie.Score, or from coterie.tasks.score.Showing; or leave out "
            "evaluate.metrics",
        )
    return Measured(score, tuple(metrics))


def expect_metrics(metrics: Sequence[str]) -> None:
    """Refuse metrics that do not exist, and functions that cannot be imported."""
    for name, reason in objections(metrics):
        near = similar(name, METRICS) if reason == "unknown metric" else ""
        raise scoring.unusable(name, f"{reason}; {near}" if near else reason)
    for name in numbers(metrics):
        scoring.function(name)


def named(metric: str | Callable[..., Any]) -> str:
    """The name of a metric, also of one that is given as the function itself.

    >>> named("auc"), named(scoring.auc)
    ('auc', 'coterie.tasks.scoring:auc')
    """
    if isinstance(metric, str):
        return metric
    place = f"{metric.__module__}:{metric.__qualname__}"
    if not metric.__qualname__.isidentifier():
        raise scoring.unusable(place, "only a function at the top of its module has a name")
    return place
