"""What an answer may be: the form that a task declares, and how a tensor is held against it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from coterie.core.checks import total_square

Bound = float | tuple[float, ...]  # one for all numbers, or one for each place of the last axis
LARGEST_LOSS = 1e20  # a loss above it is that of training which diverged
# Numbers whose squares sum up to more cannot be computed with: distances between models, sums of
# them and products with them leave float32 soon.
LARGEST_SQUARE = torch.finfo(torch.float32).max / 2**40


class Fault(NamedTuple):
    """Why an answer cannot be used."""

    why: str
    finite: bool = True  # False: its numbers are not finite or too large, as when training diverges


class Form(NamedTuple):
    """What one tensor of an answer may be.

    >>> form = Form("int64", (), low=0, high=3)
    >>> form.fault("choice", torch.tensor(2)) is None
    True
    >>> form.fault("choice", torch.tensor(999)).why
    'its choice is 999, it must lie in [0, 3]'
    """

    dtype: str
    shape: tuple[int | None, ...]  # None: a length that only the answers can tell, alike for all
    low: Bound = -math.inf
    high: Bound = math.inf
    whole: bool = False  # no fractions
    total: tuple[float, float] | None = None  # between what its numbers sum up
    blank: bool = False  # a row that is NaN throughout is an answer, too: nothing to tell
    gaps: bool = False  # NaN at any place is one: that number cannot be told

    def __str__(self) -> str:
        sizes = ["?" if size is None else str(size) for size in self.shape]
        return f"({', '.join(sizes)}{',' * (len(sizes) == 1)}) {self.dtype}"

    def fits(self, other: Form) -> bool:
        """Whether something of that type and shape can be meant."""
        return (
            other.dtype == self.dtype
            and len(other.shape) == len(self.shape)
            and all(want in (None, got) for want, got in zip(self.shape, other.shape, strict=True))
        )

    def fault(self, name: str, t: Tensor) -> Fault | None:
        """Why this tensor is not of this form, or nothing."""
        if not self.fits(form_of(t)):
            return Fault(f"{name} expected {self}, got {form_of(t)}")
        if self.blank:
            t = t[~t.isnan().all(-1)]
        if (self.low, self.high) == (-math.inf, math.inf):  # one pass over a model, not five
            return too_large(name, t) or self.odd(name, t)
        low, high = (torch.tensor(edge, dtype=torch.float64) for edge in (self.low, self.high))
        if not (low.isfinite().all() and high.isfinite().all()) and (fault := too_large(name, t)):
            return fault
        bad = ~((t >= low) & (t <= high))
        if self.gaps:
            bad &= ~t.isnan()
        if bad.any():
            x, *limits = (v.expand(t.shape)[bad][0].item() for v in (t, low, high))
            if not math.isfinite(x):
                return not_finite(name, t)
            why = f"its {name} is {shown(x)}, it must lie in {interval(*limits)}"
            return Fault(why, finite=abs(x) < LARGEST_LOSS)
        return self.odd(name, t)

    def odd(self, name: str, t: Tensor) -> Fault | None:
        """Why numbers that are each in their range cannot be meant together, or nothing."""
        if self.whole and t.is_floating_point() and bool((t != t.round()).any()):
            return Fault(f"its {name} is {shown(t[t != t.round()][0].item())}, no whole number")
        if self.total is not None and not self.total[0] <= float(t.double().sum()) <= self.total[1]:
            found = shown(float(t.double().sum()))
            return Fault(f"its {name} sums up to {found}, that must lie in {interval(*self.total)}")
        return None


AnswerForm = Mapping[str, Form]  # of "value" and of each "extra.<name>"


def form_of(t: Tensor) -> Form:
    """The form that a tensor has.

    >>> str(form_of(torch.zeros(2, 3)))
    '(2, 3) float32'
    """
    return Form(str(t.dtype).removeprefix("torch."), tuple(t.shape))


def too_large(name: str, t: Tensor) -> Fault | None:
    """Why numbers cannot be computed with, or nothing: they are not finite, or nearly so.

    >>> too_large("update", torch.tensor([1e30])).why
    'its update is too large to compute with: its largest number is 1e+30'
    >>> too_large("update", torch.tensor([3e4, -5e-45])) is None
    True
    """
    if not t.is_floating_point():
        return None
    flat = t.detach().reshape(-1)
    flat = flat if flat.dtype in (torch.float32, torch.float64) else flat.double()
    if total_square(flat) <= LARGEST_SQUARE:  # one pass tells; NaN is not below anything either
        return None
    if fault := not_finite(name, t):
        return fault
    largest = shown(float(flat[flat.abs().argmax()]))
    why = f"its {name} is too large to compute with: its largest number is {largest}"
    return Fault(why, finite=False)


def not_finite(name: str, t: Tensor) -> Fault | None:
    """How many numbers are not finite, if any."""
    if bad := int((~torch.isfinite(t)).sum()):
        return Fault(f"{bad} of {t.numel()} values of its {name} are not finite", finite=False)
    return None


def interval(low: float, high: float) -> str:
    """Bounds as they are written.

    >>> interval(0, 1), interval(0.0, math.inf)
    ('[0, 1]', '[0, inf)')
    """
    left = f"[{shown(low)}" if math.isfinite(low) else "(-inf"
    return f"{left}, {shown(high)}]" if math.isfinite(high) else f"{left}, inf)"


def shown(x: float) -> str:
    """A number as people read it."""
    return f"{x:d}" if isinstance(x, int) else f"{x:.6g}"
