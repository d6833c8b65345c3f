"""Which labels a client holds, from what it sent.

The gradient of the head's bias is, class by class, the mean probability that the model gives it
less the share of the samples that have it. A server that knows the model guesses the former.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from coterie.audit.pictures import Frame
from coterie.audit.rebuilding import Gradient
from coterie.core.layout import Layout

PROBES = 256  # pictures of noise on which a server that has no samples asks its model


def expected(layout: Layout, row: Tensor, frame: Frame, rng: torch.Generator) -> Tensor:
    """(C,) the mean probability of each class, as far as one can tell without samples."""
    shape = (PROBES, *frame.typical.shape)
    u = torch.rand(shape, generator=rng) * (frame.high - frame.low) + frame.low
    return layout.predict(row, frame.scaled(u)).softmax(1).mean(0)


def bias_of(seen: Gradient, layout: Layout) -> Tensor | None:
    """(C,) the gradient of the head's bias; None if the head has none or it was not sent."""
    if layout.head_name is None or f"{layout.head_name}.bias" not in layout.names:
        return None
    full = seen.value.new_full((layout.size,), float("nan"))
    full[seen.places] = seen.value
    bias = full[layout.columns("head.bias")]
    return None if bias.isnan().any() else bias


def from_bias(bias: Tensor, probs: Tensor, n: int) -> Tensor:
    """(C,) how many of n samples have each label, from the gradient of the head's bias.

    >>> from_bias(torch.tensor([-0.25, 0.25]), torch.tensor([0.5, 0.5]), 4).tolist()
    [3.0, 1.0]
    """
    return shared_out((probs - bias).clamp(min=0), n)


def from_forces(forces: Tensor, n: int) -> Tensor:
    """(C,) how many of n samples have each label, from the pull on each class (2, C).

    A class that is not there exerts none; otherwise more samples pull more.
    """
    return shared_out(forces[0].clamp(min=0), n)


def shared_out(weights: Tensor, n: int) -> Tensor:
    """(C,) n samples in these proportions; evenly if all are zero."""
    total = float(weights.sum())
    return weights * (n / total) if total > 0 else torch.full_like(weights, n / len(weights))


def overlap(guess: Tensor, true: Tensor) -> float:
    """The share of a client's labels that a guess has right, both (C,) with the same sum.

    >>> overlap(torch.tensor([3.0, 1.0]), torch.tensor([2.0, 2.0]))
    0.75
    """
    return round(float(torch.minimum(guess, true.to(guess.dtype)).sum() / true.sum()), 4)


class Guess(NamedTuple):
    """The labels of a client as somebody guessed them, and as they are: (C,) each."""

    guess: Tensor
    true: Tensor
    set_right: bool  # whether exactly the classes that are there were named


def even(true: Tensor) -> Tensor:
    """(C,) as many of each: what whoever saw nothing would guess."""
    return torch.full_like(true, float(true.sum()) / len(true))


def most_likely(guess: Tensor, count: int) -> Tensor:
    """(count,) the labels of so many samples, by a guess of their numbers (C,)."""
    left, found = guess.clone(), []
    for _ in range(count):
        found.append(int(left.argmax()))
        left[found[-1]] -= 1
    return torch.tensor(found)
