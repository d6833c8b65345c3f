"""What a task releases of a client's samples under noise: the entries of a privacy account."""

from __future__ import annotations

from typing import NamedTuple


class Release(NamedTuple):
    """A Gaussian mechanism on randomly drawn samples, so many times.

    Each sample is drawn with the chance `rate`, its contribution has at most norm 1, and noise of
    the deviation `noise` is added to the sum.
    """

    rate: float
    noise: float
    times: int
