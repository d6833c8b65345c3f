"""What a task wants done with a model, said as data: an engine does it for many clients at once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from coterie.core.types import Client, Layout, Reply, Sent, Task


class Work(Protocol):
    """One piece of a task that is costly, and that may be done beside that of other clients."""

    def run_single(self, layout: Layout) -> Any:
        """Do it for this client by itself: the reference for every other way."""


T = TypeVar("T")
Stepwise = Generator[Work, Any, T]  # what is sent back is what `run_single` would have given


@dataclass(frozen=True)
class Forward:
    """The logits (N, K) of a model on some samples, in evaluation mode."""

    row: Tensor  # (P,)
    x: Tensor

    def run_single(self, layout: Layout) -> Tensor:
        """A batch at a time."""
        return layout.predict(self.row, self.x)


def logits(row: Tensor, x: Tensor) -> Stepwise[Tensor]:
    """(N, K): what a model says to some samples."""
    answer: Tensor = yield Forward(row, x)
    return answer


class SteppedTask(Task):
    """A task that names its costly pieces one after another and goes on with what came of them."""

    def __call__(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Reply:
        """All steps, for this client by itself."""
        return run_single(self.stepwise(client, models, sent, layout, rng), layout)

    @abstractmethod
    def stepwise(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Stepwise[Reply]:
        """As `__call__`, with a `yield` where a model is trained or read."""


def run_single(steps: Stepwise[T], layout: Layout) -> T:
    """Do the work of each step in turn, and give what comes of the last."""
    try:
        work = next(steps)
        while True:
            work = steps.send(work.run_single(layout))
    except StopIteration as end:
        answer: T = end.value
        return answer
