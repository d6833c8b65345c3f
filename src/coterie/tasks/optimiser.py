"""Optimisers as data: how gradients move the weights, on flat rows and in place.

The learning rate is no part of an optimiser. It is what everybody tunes, and what a schedule
changes from round to round, while the rest of an optimiser stays as it is; so it is said apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from coterie.core.bounds import Decay, NonNegative, Positive, dataclass
from coterie.core.errors import ConfigError
from coterie.core.types import Sendable


@runtime_checkable
class Optimiser(Protocol):
    """What a solver steps with: a frozen dataclass of plain values.

    Weights and gradients are flat: those of one client, or of many that step together. One that
    shall leave this process, inside a task, is also `Sendable`. One that never moves a weight whose
    gradients were all zero may say so, `stays = True`: where only some layers learn it is faster.
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
        """Move the weights and what is remembered, in place; the gradient may be written over.

        `exact`: with the bits of PyTorch's own optimiser, even where fewer passes would do.
        """


@dataclass(frozen=True)
class SGD(Sendable):
    """PyTorch's SGD without dampening: v <- momentum v + g; w <- w - lr v.

    With Nesterov's momentum w <- w - lr (g + momentum v).

    >>> sgd, w = SGD(momentum=0.5), torch.tensor([1.0])
    >>> state = sgd.init(w)
    >>> for g in (1.0, 1.0):
    ...     sgd.step(w, torch.tensor([g]), state, lr=0.25)
    >>> state["v"].tolist(), w.tolist()
    ([1.5], [0.375])
    """

    momentum: Decay = 0.0  # PyTorch's; the buffer starts at zero in every training
    weight_decay: NonNegative = 0.0  # L2 penalty, added to the gradient
    nesterov: bool = False  # look ahead along the momentum

    stays: ClassVar[bool] = True

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
        """v <- momentum v + g; w <- w - lr v, or - lr (g + momentum v).

        If the product and the sum may be rounded together, where PyTorch's own step rounds both,
        it is one pass over all numbers less.
        """
        if self.momentum:
            v, rho = state["v"], self.momentum
            new = v.mul_(rho).add_(g) if exact else torch.add(g, v, alpha=rho, out=v)
            g = g.add_(new, alpha=rho) if self.nesterov else new
        w.add_(g, alpha=-lr)


@dataclass(frozen=True)
class Adam(Sendable):
    """PyTorch's Adam: the gradient's running mean over the root of its running square.

    >>> adam, w = Adam(), torch.tensor([1.0])
    >>> adam.step(w, torch.tensor([7.0]), adam.init(w), lr=0.25)
    >>> w.tolist()
    [0.75]
    """

    beta1: Decay = 0.9  # of the running mean, which starts at zero in every training
    beta2: Decay = 0.999  # of the running square, likewise
    eps: Positive = 1e-8  # added to the root
    weight_decay: NonNegative = 0.0  # L2 penalty, added to the gradient

    stays: ClassVar[bool] = True

    def init(self, w: Tensor) -> dict[str, Tensor]:
        """Both moments, and the number of steps, which is the same for all that step together."""
        return {"m": torch.zeros_like(w), "v": torch.zeros_like(w), "t": torch.zeros(())}

    def penalise(self, w: Tensor, g: Tensor) -> None:
        """g <- g + weight_decay w."""
        if self.weight_decay:
            g.add_(w, alpha=self.weight_decay)

    def step(
        self, w: Tensor, g: Tensor, state: Mapping[str, Tensor], lr: float, *, exact: bool = True
    ) -> None:
        """w <- w - lr m' / (sqrt(v') + eps), where m' and v' make up for their start at zero."""
        m, v, t = state["m"], state["v"], float(state["t"].add_(1))
        m.lerp_(g, 1 - self.beta1)
        v.mul_(self.beta2).addcmul_(g, g, value=1 - self.beta2)
        root = torch.sqrt(v, out=g).div_((1 - self.beta2**t) ** 0.5).add_(self.eps)
        w.addcdiv_(m, root, value=-lr / (1 - self.beta1**t))


@dataclass(frozen=True)
class AdamW(Adam):
    """PyTorch's AdamW: Adam whose weights decay by themselves, w <- (1 - lr weight_decay) w."""

    weight_decay: NonNegative = 0.01  # taken off the weights, not added to the gradient

    stays: ClassVar[bool] = False

    def penalise(self, w: Tensor, g: Tensor) -> None:
        """Nothing: the decay is not a matter of the gradient."""

    def step(
        self, w: Tensor, g: Tensor, state: Mapping[str, Tensor], lr: float, *, exact: bool = True
    ) -> None:
        """The weights decay; then a step of Adam."""
        if self.weight_decay:
            w.mul_(1 - lr * self.weight_decay)
        super().step(w, g, state, lr, exact=exact)


def sgd(optimiser: Optimiser, method: str) -> SGD:
    """The optimiser of a method whose formulas hold for SGD alone; any other is refused."""
    if not isinstance(optimiser, SGD):
        raise ConfigError(
            f"{method} is derived for SGD, and its solver has {optimiser!r}",
            code="C048",
            fix="leave the optimiser out, or choose another method",
        )
    return optimiser
