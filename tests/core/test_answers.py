"""A form says what an answer may be, and what is wrong with one that is not."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from coterie.core.answers import Form

SCORE = Form("float64", (1, 2), 0, (1.0, 1e20), blank=True)
COUNTS = Form("float32", (3,), 0, 9, whole=True, total=(9, 9))
ROW = Form("float32", (None, 2))


def score(*numbers: float) -> Tensor:
    return torch.tensor([numbers], dtype=torch.float64)


@pytest.mark.parametrize(
    ("form", "t"),
    [
        (SCORE, score(0.5, 3.0)),
        (SCORE, score(math.nan, math.nan)),
        (COUNTS, torch.tensor([4.0, 5.0, 0.0])),
        (ROW, torch.zeros(7, 2)),
        (ROW, torch.full((7, 2), -1e12)),
        (ROW, torch.full((7, 2), 1e-45)),
        (ROW, torch.zeros(0, 2)),
        (Form("bool", (2,)), torch.tensor([True, False])),
    ],
)
def test_what_is_of_the_form_is_taken(form: Form, t: Tensor) -> None:
    assert form.fault("x", t) is None


@pytest.mark.parametrize(
    ("form", "t", "why", "finite"),
    [
        (SCORE, score(180.0, 0.1), "its x is 180, it must lie in [0, 1]", True),
        (SCORE, score(-7.66, 0.1), "its x is -7.66, it must lie in [0, 1]", True),
        (SCORE, score(0.1, 1e300), "its x is 1e+300, it must lie in [0, 1e+20]", False),
        (SCORE, score(0.1, math.nan), "1 of 2 values of its x are not finite", False),
        (SCORE, score(math.inf, 0.1), "1 of 2 values of its x are not finite", False),
        (COUNTS, torch.tensor([4.5, 4.5, 0.0]), "its x is 4.5, no whole number", True),
        (COUNTS, torch.tensor([4.0, 4.0, 0.0]), "its x sums up to 8", True),
        (COUNTS, torch.tensor([-1.0, 9.0, 1.0]), "its x is -1, it must lie in [0, 9]", True),
        (ROW, torch.full((2, 2), 1e30), "its x is too large to compute with", False),
        (ROW, torch.zeros(2, 3), "x expected (?, 2) float32, got (2, 3) float32", True),
        (ROW, torch.zeros(2, 2).double(), "x expected (?, 2) float32, got (2, 2) float64", True),
        (Form("int64", (), 0, 3), torch.tensor(2**62), "its x is 4611686018427387904", True),
    ],
)
@pytest.mark.row(14, 15, counts="malformed answers")
def test_what_is_not_is_refused_and_says_why(form: Form, t: Tensor, why: str, finite: bool) -> None:
    fault = form.fault("x", t)
    assert fault is not None
    assert fault.why.startswith(why)
    assert fault.finite == finite
