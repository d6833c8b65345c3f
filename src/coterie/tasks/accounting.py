"""How much of a client's privacy is spent: Rényi divergences, which add up from release to release.

The mechanism's divergences and their conversion to epsilon are Opacus's; an order is a number
alpha > 1, and what is kept of a client is one divergence for each order.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from functools import cache

import torch
from torch import Tensor

from coterie.core.errors import ConfigError
from coterie.core.extras import require
from coterie.core.releases import Release

# Between two of them epsilon would be a little less: what is told is at least what is true.
ORDERS = (*(1 + x / 4 for x in range(1, 40)), *range(11, 64), 80, 128, 256, 512)
MOST_NOISE = 1e4  # multiplier above which there is nothing left to learn from


@cache
def divergences(release: Release) -> tuple[float, ...]:
    """What a release spends, at each of `ORDERS`."""
    require("differential privacy", "dp", ("opacus",))
    from opacus.accountants.analysis import rdp

    spent = rdp.compute_rdp(
        q=release.rate, noise_multiplier=release.noise, steps=release.times, orders=list(ORDERS)
    )
    return tuple(float(one) for one in spent)


def spent(releases: Iterable[Release]) -> Tensor:
    """(orders,) float64: what some releases spend together."""
    total = torch.zeros(len(ORDERS), dtype=torch.float64)
    for release in releases:
        total += torch.tensor(divergences(release), dtype=torch.float64)
    return total


def epsilon(total: Tensor, delta: float) -> float:
    """The epsilon that belongs to what was spent, with the chance `delta` that it fails.

    >>> epsilon(torch.zeros(len(ORDERS)), 1e-5)
    0.0
    """
    if not total.any():
        return 0.0
    require("differential privacy", "dp", ("opacus",))
    from opacus.accountants.analysis import rdp

    with warnings.catch_warnings():  # another order would give less, and this bound holds, too
        warnings.simplefilter("ignore", UserWarning)
        found, _ = rdp.get_privacy_spent(orders=list(ORDERS), rdp=total.tolist(), delta=delta)
    return float(found)


def least_noise(planned: Sequence[Release], limit: float, delta: float) -> float:
    """The least noise multiplier with which all that is planned stays within an epsilon.

    The releases' own noise is of no account. Rounded up to three digits behind the point.
    """

    def within(noise: float) -> bool:
        return epsilon(spent(one._replace(noise=noise) for one in planned), delta) <= limit

    low, high = 0.0, 1.0
    while not within(high):
        low, high = high, 2 * high
        if high > MOST_NOISE:
            raise ConfigError(
                f"no noise keeps what is planned within epsilon {limit:g}",
                code="C072",
                fix="fewer rounds, fewer local epochs, a larger epsilon or clients of more samples",
            )
    while high - low > 5e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if within(middle) else (middle, high)
    return round(high + 5e-4, 3)
