"""Paired tests: held to brute force, to scipy, and to tables of textbooks."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from coterie.runs.comparison import findings
from coterie.runs.statistics import friedman, holm, interval, signed_rank_p, student, wilcoxon

SMALL = st.lists(st.integers(-4, 4).filter(bool), min_size=1, max_size=9)
P = st.lists(st.floats(0, 1), min_size=1, max_size=8)


def by_brute_force(d: np.ndarray) -> float:
    """Every choice of signs, one by one."""
    ranks = stats.rankdata(np.abs(d))
    seen = min(ranks[d > 0].sum(), ranks[d < 0].sum())
    sums = [ranks @ np.array(signs) for signs in product((0, 1), repeat=len(d))]
    return float(min(1.0, 2 * np.mean([s <= seen + 1e-9 for s in sums])))


@given(SMALL)
def test_p_counts_every_choice_of_signs_also_with_equal_sizes(d: list[int]) -> None:
    x = np.array(d, dtype=float)
    assert signed_rank_p(x) == pytest.approx(by_brute_force(x), abs=1e-12)


@given(st.permutations(range(1, 31)), st.integers(0, 2**30 - 1))
def test_without_equal_sizes_p_is_scipys(order: list[int], signs: int) -> None:
    d = np.array([v if signs >> i & 1 else -v for i, v in enumerate(order)], dtype=float)
    assert signed_rank_p(d) == pytest.approx(stats.wilcoxon(d, method="exact").pvalue)


def test_beyond_fifty_pairs_the_normal_distribution_is_near() -> None:
    d = np.random.default_rng(0).normal(0.3, 1, 51)
    assert signed_rank_p(d) == pytest.approx(stats.wilcoxon(d, method="exact").pvalue, abs=0.01)


@given(SMALL)
def test_turning_a_pair_round_changes_only_the_words(d: list[int]) -> None:
    there, back = wilcoxon(d, [0] * len(d), "a", "b"), wilcoxon([0] * len(d), d, "b", "a")
    assert there.turned == back
    if there.wins != there.losses:
        assert there.sentence == back.sentence


@pytest.mark.parametrize(
    ("gains", "words"),
    [
        ([0.2] * 20, "a is better than b for 20 of 20 clients (Wilcoxon p < 0.001)"),
        ([-0.2] * 20, "b is better than a for 20 of 20 clients (Wilcoxon p < 0.001)"),
        ([0.0] * 4, "a and b are equal for all 4 clients"),
        (
            [0.1] * 8 + [0.0] * 2,
            "a is better than b for 8 of 10 clients, worse for 0 (Wilcoxon p = 0.008)",
        ),
        (
            [0.1] * 5,
            "a is better than b for 5 of 5 clients: too few to say anything "
            "(at least 6 that differ are needed for p < 0.05)",
        ),
        (
            [0.1, -0.2] * 4,
            "a is better than b for 4 of 8 clients, which may be chance (Wilcoxon p = 0.28)",
        ),
        (
            [0.1] * 19 + [-3.0],
            "a is better than b for 19 of 20 clients, but worse in the mean (Wilcoxon p < 0.001)",
        ),
    ],
)
def test_the_sentence_says_what_a_reader_needs(gains: list[float], words: str) -> None:
    assert wilcoxon(gains, [0.0] * len(gains), "a", "b").sentence == words


def test_rounding_makes_no_pair_differ() -> None:
    test = wilcoxon([0.1 + 0.2], [0.3], "a", "b")
    assert (test.wins, test.ties, test.p) == (0, 1, None)


@given(P)
def test_holm_is_monotone_never_below_p_and_the_smallest_is_bonferroni(p: list[float]) -> None:
    out = [v for v in holm(p) if v is not None]
    assert all(a >= b for a, b in zip(out, p, strict=True))
    order = np.argsort(p, kind="stable")
    assert (np.diff(np.array(out)[order]) >= 0).all()
    assert out[order[0]] == pytest.approx(min(1.0, len(p) * min(p)))


@given(P)
def test_holm_multiplies_each_by_how_many_are_not_smaller(p: list[float]) -> None:
    order = sorted(p)
    steps = [min(1.0, (len(p) - i) * v) for i, v in enumerate(order)]
    expected = [max(steps[: i + 1]) for i in range(len(p))]
    assert sorted(v for v in holm(p) if v is not None) == expected


def test_an_interval_is_students() -> None:
    found = interval([0.5, 0.6, 0.7])
    low, high = stats.t.interval(0.95, 2, loc=0.6, scale=0.1 / 3**0.5)
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx((low, high))  # type: ignore[operator]
    assert interval([0.5]).half is None, "one run shows nothing of how runs differ"


@pytest.mark.parametrize(("k", "q"), [(3, 2.343), (5, 2.728), (10, 3.164)])
def test_the_critical_difference_is_that_of_demsars_table(k: int, q: float) -> None:
    rows = np.random.default_rng(k).random((12, k)).tolist()
    expected = q * (k * (k + 1) / (6 * 12)) ** 0.5
    found = friedman(rows, [str(i) for i in range(k)])
    assert found.critical_difference == pytest.approx(expected, abs=2e-3)


def test_friedman_ranks_the_best_first_and_nemenyi_agrees_with_the_difference() -> None:
    rows = [[0.9, 0.8, 0.1], [0.8, 0.7, 0.2], [0.9, 0.85, 0.3], [0.7, 0.6, 0.1], [0.5, 0.4, 0.2]]
    found = friedman(rows, ["a", "b", "c"])
    assert found.ranks == {"a": 1.0, "b": 2.0, "c": 3.0}
    assert found.p == pytest.approx(stats.friedmanchisquare(*np.array(rows).T).pvalue)
    for (a, b), p in found.nemenyi.items():
        far = abs(found.ranks[a] - found.ranks[b]) > found.critical_difference
        assert (p < 0.05) == far


def test_methods_that_are_equal_everywhere_are_said_to_be() -> None:
    found = friedman([[0.5, 0.5, 0.5]] * 4, ["a", "b", "c"])
    assert found.p is None
    assert found.alike == [("a", "b", "c")]
    assert "no difference shown" in found.sentence


def scores(seeds: int, gain: float = 0.1) -> dict[str, dict[int, dict[str, float]]]:
    rng = np.random.default_rng(3)
    base = {s: {str(c): float(rng.random()) for c in range(4)} for s in range(seeds)}
    better = {s: {c: a + gain for c, a in them.items()} for s, them in base.items()}
    return {"a": base, "b": better, "c": base}


def test_clients_and_seeds_are_two_questions() -> None:
    found = findings(scores(seeds=3))
    pair = found.pairs[0]
    assert (pair.clients.n, pair.seeds.n) == (12, 3)
    assert pair.clients.significant
    assert pair.sentence.endswith("in 3 of 3 seeds, too few for a test")
    assert "3 are too few to tell two methods apart" in found.caveat
    assert findings(scores(seeds=6)).pairs[0].seeds.significant


def test_a_client_that_a_method_does_not_test_is_left_out_for_all() -> None:
    given = scores(seeds=2)
    del given["b"][1]["2"]
    found = findings(given)
    assert (found.clients, found.left_out) == (7, 1)
    assert {p.clients.n for p in found.pairs} == {7}


def test_a_seed_that_a_method_lacks_is_left_out_for_all() -> None:
    given = scores(seeds=3)
    del given["c"][0]
    assert findings(given).seeds == 2


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 30, 99, 1000])
@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
def test_students_distribution_is_scipys(freedom: int, level: float) -> None:
    assert student(freedom, level) == pytest.approx(stats.t.ppf((1 + level) / 2, freedom), 1e-10)
