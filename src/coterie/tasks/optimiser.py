"""Optimisers as data: how gradients move the weights, on flat rows and in place.

The learning rate is no part of an optimiser. It is what everybody tunes, and what a schedule
changes from round to round, while the rest of an optimiser stays as it is; so it is said apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from coterie.core.bounds import Decay, NonNegative, dataclass
from coterie.core.types import Sendable


@runtime_checkable
class Optimiser(Protocol):
    """What a solver steps with: a frozen dataclass of plain values.

    Weights and gradients are flat: those of one client, or of many that step together. One that
    shall leave this process, inside a task, is also `Sendable`.
    """

    def init(self, w: Tensor) -> dict[str, Tensor]:
        """What it remembers from step to step: tensors like `w`, or single numbers."""

    def penalise(self, w: Tensor, g: Tensor) -> None:
        """Add to the gradient, in place, what the optimiser itself asks of the weights.

        Apart from `step`, for what does not learn is masked out in between: it must not decay.
        """

    def step(
        self, w: Tensor, g: Tensor, state: Mapping[str, Tensor], lr: float, *, exact: bool = True
    ) -> None:
        """Move the weights and what is remembered, in place.

        `exact`: with the bits of PyTorch's own optimiser, even where fewer passes would do.
        """


@dataclass(frozen=True)
class SGD(Sendable):
    """PyTorch's SGD without dampening or Nesterov: v <- momentum v + g; w <- w - lr v.

    >>> sgd, w = SGD(momentum=0.5), torch.tensor([1.0])
    >>> state = sgd.init(w)
    >>> for g in (1.0, 1.0):
    ...     sgd.step(w, torch.tensor([g]), state, lr=0.25)
    >>> state["v"].tolist(), w.tolist()
    ([1.5], [0.375])
    """

    momentum: Decay = 0.0  # PyTorch's; the buffer starts at zero in every training
    weight_decay: NonNegative = 0.0  # L2 penalty, added to the gradient

    def init(self, w: Tensor) -> dict[str, Tensor]:
        """The buffer v; without momentum there is none."""
        return {"v": torch.zeros_like(w)} if self.momentum else {}

    def penalise(self, w: Tensor, g: Tensor) -> None:
        """g <- g + weight_decay w."""
        if self.weight_decay:
            g.add_(w, alpha=self.weight_decay)

    def step(
        self, w: Tensor, g: Tensor, state: Mapping[str, Tensor], lr: float, *, exact: bool = True
    ) -> None:
        """v <- momentum v + g; w <- w - lr v.

        If the product and the sum may be rounded together, where PyTorch's own step rounds both,
        it is one pass over all numbers less.
        """
        if self.momentum:
            v, rho = state["v"], self.momentum
            g = v.mul_(rho).add_(g) if exact else torch.add(g, v, alpha=rho, out=v)
        w.add_(g, alpha=-lr)


def sgd(optimiser: Optimiser, method: str) -> SGD:
    """The optimiser of a method whose formulas hold for SGD alone; any other is refused."""
    if not isinstance(optimiser, SGD):
        raise TypeError(f"{method} is derived for SGD, and its solver has {optimiser!r}")
    return optimiser
