"""Is one method better than another? Paired tests over clients and over seeds, in words.

Two questions are kept apart. *Over clients*: did the clients of these runs do better with one
method than with the other? Clients of one run share its models and its seed: they are not
independent of one another, and the test says nothing about another run. *Over seeds*: would it
come out so again? There each seed is one pair, and a few seeds can show nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import cos, inf, pi, sin, sqrt, tan

import numpy as np

LEVEL = 0.05
EXACT = 50  # up to so many pairs the distribution is counted out, beyond it is taken as normal


@dataclass(frozen=True)
class Interval:
    """A mean over runs with the half-width of its 95 % interval; one run has none.

    >>> str(interval([0.5, 0.6, 0.7]))
    '60.0 ± 24.8 %'
    >>> str(interval([0.5]))
    '50.0 %'
    """

    mean: float
    half: float | None  # None: one run shows nothing of how runs differ
    std: float | None  # between runs, with n - 1
    n: int

    def __str__(self) -> str:
        margin = "" if self.half is None else f" ± {100 * self.half:.1f}"
        return f"{100 * self.mean:.1f}{margin} %"


def interval(values: Sequence[float], level: float = 1 - LEVEL) -> Interval:
    """Student's interval for the mean of independent runs."""
    n = len(values)
    mean = float(np.mean(values))
    if n < 2:
        return Interval(mean, None, None, n)
    std = float(np.std(values, ddof=1))
    return Interval(mean, student(n - 1, level) * std / sqrt(n), std, n)


def student(freedom: int, level: float) -> float:
    """The t whose -t to t hold this share of Student's distribution.

    For whole degrees of freedom that share is a finite sum (Abramowitz and Stegun, 26.7.3 and
    26.7.4), and no reason to import scipy, which takes longer than a short run.

    >>> round(student(1, 0.95), 3), round(student(4, 0.95), 3)
    (12.706, 2.776)
    """
    odd = freedom % 2
    j = np.arange(1, freedom // 2 if not odd else (freedom - 1) // 2)
    factors = np.cumprod([1.0, *((2 * j - 1 + odd) / (2 * j + odd))])
    powers = 2 * np.arange(len(factors)) + odd
    low, high = 0.0, pi / 2  # of the angle whose tangent is t / sqrt(freedom)
    for _ in range(60):
        angle = (low + high) / 2
        share = sin(angle) * float(factors @ cos(angle) ** powers) if freedom > 1 else 0.0
        within = 2 / pi * (angle + share) if odd else share
        low, high = (angle, high) if within < level else (low, angle)
    return sqrt(freedom) * tan(low)


@dataclass(frozen=True)
class Wilcoxon:
    """The signed-rank test of paired differences, first minus second; equal pairs are left out."""

    first: str
    second: str
    over: str  # "clients" or "seeds"
    wins: int  # pairs in which the first is better
    ties: int
    losses: int
    difference: float  # the mean one
    p: float | None  # two-sided; None: there is no pair that differs

    @property
    def n(self) -> int:
        """How many pairs there are."""
        return self.wins + self.ties + self.losses

    @property
    def enough(self) -> bool:
        """Whether so many pairs that differ could come out below 0.05 at all."""
        return 2.0 ** (1 - self.wins - self.losses) < LEVEL

    @property
    def significant(self) -> bool:
        """Below 0.05, alone: among many pairs, look at the p that Holm adjusts."""
        return self.p is not None and self.p < LEVEL

    @property
    def sentence(self) -> str:
        """What a reader needs to know.

        >>> wilcoxon([0.9] * 20, [0.7] * 20, "fedclust", "fedavg").sentence
        'fedclust is better than fedavg for 20 of 20 clients (Wilcoxon p < 0.001)'
        """
        if self.losses > self.wins:
            return self.turned.sentence
        a, b = self.first, self.second
        if self.p is None:
            return f"{a} and {b} are equal for all {self.n} {self.over}"
        counts = f"{a} is better than {b} for {self.wins} of {self.n} {self.over}"
        counts += f", worse for {self.losses}" if self.ties else ""
        if not self.enough:
            needed = "at least 6 that differ are needed for p < 0.05"
            return f"{counts}: too few to say anything ({needed})"
        if self.significant and self.difference <= 0:  # many small gains, a few great losses
            return f"{counts}, but worse in the mean (Wilcoxon {shown(self.p)})"
        if self.significant:
            return f"{counts} (Wilcoxon {shown(self.p)})"
        return f"{counts}, which may be chance (Wilcoxon {shown(self.p)})"

    @property
    def turned(self) -> Wilcoxon:
        """This test with its two methods exchanged."""
        a, b, d = self.second, self.first, -self.difference
        return replace(self, first=a, second=b, wins=self.losses, losses=self.wins, difference=d)


def shown(p: float) -> str:
    """A p value in words.

    >>> shown(0.00001), shown(0.0314), shown(0.5)
    ('p < 0.001', 'p = 0.031', 'p = 0.50')
    """
    return "p < 0.001" if p < 0.001 else f"p = {p:.{2 if p >= 0.1 else 3}f}"


def wilcoxon(
    a: Sequence[float], b: Sequence[float], first: str, second: str, over: str = "clients"
) -> Wilcoxon:
    """Wilcoxon's signed-rank test of paired numbers, of which more is better.

    Differences are compared to 12 digits, so that rounding makes no pair differ.

    >>> wilcoxon([2, 3, 4, 5, 6, 7], [1, 1, 1, 1, 1, 1], "a", "b").p
    0.03125
    """
    if len(a) != len(b):
        raise ValueError(f"{len(a)} numbers cannot be paired with {len(b)}")
    d = np.round(np.asarray(a, dtype=float) - np.asarray(b, dtype=float), 12)
    known = d[d != 0]
    return Wilcoxon(
        first,
        second,
        over,
        wins=int((d > 0).sum()),
        ties=int((d == 0).sum()),
        losses=int((d < 0).sum()),
        difference=float(d.mean()) if len(d) else 0.0,
        p=signed_rank_p(known) if len(known) else None,
    )


def signed_rank_p(d: np.ndarray) -> float:
    """The two-sided p of differences none of which is 0.

    Up to 50 pairs it is exact, with equal sizes too: every choice of signs is counted. Accuracies
    of small test sets are often equal, and there the usual tables do not hold.
    """
    if len(d) > EXACT:
        from scipy import stats

        return float(stats.wilcoxon(d, method="approx", correction=True).pvalue)
    _, place, equal = np.unique(np.abs(d), return_inverse=True, return_counts=True)
    ranks = (2 * equal.cumsum() - equal + 1)[place]  # twice the mean rank: a whole number
    ways = np.zeros(ranks.sum() + 1)
    ways[0] = 1.0
    for r in ranks:
        ways[r:] = ways[r:] + ways[: len(ways) - r]  # with this rank on the positive side, too
    low = min(ranks[d > 0].sum(), ranks[d < 0].sum())
    return float(min(1.0, 2 * ways[: low + 1].sum() / ways.sum()))


def holm(p: Sequence[float | None]) -> list[float | None]:
    """Holm's adjusted p values: small ones stay small only if they are so among all of them.

    >>> holm([0.01, None, 0.04, 0.03])
    [0.03, None, 0.06, 0.06]
    """
    order = sorted((value, i) for i, value in enumerate(p) if value is not None)
    out: list[float | None] = [None] * len(p)
    highest = 0.0
    for rank, (value, i) in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * value))
        out[i] = highest
    return out


@dataclass(frozen=True)
class Friedman:
    """Do several methods differ at all, and which mean ranks are further apart than chance?"""

    methods: tuple[str, ...]
    over: str
    n: int  # blocks: clients or seeds
    ranks: Mapping[str, float]  # mean rank of each, 1 is best
    statistic: float
    p: float | None  # None: all methods are equal in every block
    critical_difference: float  # of mean ranks (Nemenyi), at 0.05
    nemenyi: Mapping[tuple[str, str], float] = field(default_factory=dict)  # p of each pair

    @property
    def alike(self) -> list[tuple[str, ...]]:
        """The longest runs of methods, best first, that are not told apart: the bars of a CD plot.

        >>> friedman([[3, 2, 1]] * 4, ["a", "b", "c"]).alike
        [('a', 'b'), ('b', 'c')]
        """
        order = sorted(self.methods, key=lambda m: self.ranks[m])
        limit = self.critical_difference + 1e-9  # with room for rounding
        bars: list[tuple[str, ...]] = []
        for i, first in enumerate(order):
            near = [m for m in order[i:] if self.ranks[m] - self.ranks[first] <= limit]
            if len(near) > 1 and not (bars and set(near) <= set(bars[-1])):
                bars.append(tuple(near))
        return bars

    @property
    def sentence(self) -> str:
        """What a reader needs to know."""
        order = sorted(self.methods, key=lambda m: self.ranks[m])
        ranks = ", ".join(f"{m} {self.ranks[m]:.2f}" for m in order)
        head = f"mean ranks over {self.n} {self.over} (1 is best): {ranks}"
        if self.p is None or self.p >= LEVEL:
            found = "equal" if self.p is None else shown(self.p)
            return f"{head}; no difference shown between the {len(order)} (Friedman {found})"
        cd = f"{self.critical_difference:.2f}"
        return f"{head}; they differ (Friedman {shown(self.p)}), pairs by more than {cd} (Nemenyi)"


def friedman(
    blocks: Sequence[Sequence[float]], methods: Sequence[str], over: str = "clients"
) -> Friedman:
    """Friedman's test and Nemenyi's critical difference: a row for each block, more is better."""
    from scipy import stats

    x = np.round(np.asarray(blocks, dtype=float), 12)
    n, k = x.shape
    if k < 3 or n < 2:
        raise ValueError(f"needs 3 methods and 2 {over} at least, got {k} and {n}")
    mean = stats.rankdata(-x, axis=1).mean(0)
    ranks = dict(zip(methods, mean.tolist(), strict=True))
    unit = sqrt(k * (k + 1) / (6 * n))
    equal = bool((x == x[:, :1]).all())
    found = (0.0, None) if equal else stats.friedmanchisquare(*x.T)
    return Friedman(
        tuple(methods),
        over,
        n,
        ranks,
        statistic=float(found[0]),
        p=None if found[1] is None else float(found[1]),
        critical_difference=float(stats.studentized_range.ppf(1 - LEVEL, k, inf)) / sqrt(2) * unit,
        nemenyi={
            (a, b): float(
                stats.studentized_range.sf(sqrt(2) * abs(ranks[a] - ranks[b]) / unit, k, inf)
            )
            for a, b in combinations(methods, 2)
        },
    )
