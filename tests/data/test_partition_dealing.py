"""The words of dealing, by their properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from coterie.data.divide import dealing
from coterie.data.divide.dealing import (
    REDRAWS,
    Piles,
    apportion,
    choose,
    dirichlet_counts,
    gather,
    label_counts,
    level,
)

quick = settings(max_examples=40, deadline=None)
rows = st.integers(1, 5)
weights = st.tuples(rows, rows).flatmap(
    lambda shape: arrays(np.int64, shape, elements=st.integers(0, 50))
)
seeds = st.integers(0, 1000)


@given(weights, st.integers(0, 200), seeds)
@quick
def test_apportioned_rows_add_up_and_stay_within_one_of_their_shares(
    weights: np.ndarray, total: int, seed: int
) -> None:
    totals = np.full(len(weights), total)
    counts = apportion(weights, totals, np.random.default_rng(seed))
    some = weights.sum(1) > 0
    exact = weights[some] / weights[some].sum(1, keepdims=True) * total
    assert (counts.sum(1) == np.where(some, total, 0)).all()
    assert (np.abs(counts[some] - exact) < 1).all()
    assert (counts[weights == 0] == 0).all()


def test_what_is_left_over_does_not_always_go_to_the_first() -> None:
    rng = np.random.default_rng(0)
    extra = sum(apportion(np.ones((1, 4)), np.array([1]), rng)[0] for _ in range(400))
    assert (np.abs(extra - 100) < 40).all()


@given(st.integers(1, 5), st.integers(1, 60), seeds)
@quick
def test_piles_deal_what_is_counted_and_nothing_twice(n: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=size)
    piles = Piles.of(y, 3, rng)
    counts = apportion(np.ones((3, n)), piles.size, rng).T
    parts = piles.deal(counts)
    assert (label_counts(parts, y, 3) == counts).all()
    assert sorted(np.concatenate(parts)) == list(range(size))
    assert all((np.diff(part) > 0).all() for part in parts)


def test_a_pile_that_ends_begins_again() -> None:
    piles = Piles.of(np.zeros(4, dtype=np.int64), 1, np.random.default_rng(0))
    (part,) = piles.take(np.array([[2]]), np.array([[4]]))
    assert part.tolist() == [0, 1, 2, 3]


@given(st.lists(st.integers(-1, 3), min_size=1, max_size=30))
@quick
def test_gather_inverts_who_holds_what(holder: list[int]) -> None:
    parts = gather(np.array(holder), 4)
    assert [part.tolist() for part in parts] == [
        [i for i, h in enumerate(holder) if h == client] for client in range(4)
    ]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.floats(0, 1), seeds)
@quick
def test_chosen_and_rest_are_the_whole_in_the_same_proportions(
    sizes: list[int], share: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=sum(sizes))
    parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    wanted = (share * np.array(sizes)).astype(np.int64)
    chosen, rest = choose(parts, wanted, y, 3, rng)
    for part, some, others in zip(parts, chosen, rest, strict=True):
        assert sorted([*some, *others]) == part.tolist()
    exact = label_counts(parts, y, 3) * (wanted / np.array(sizes))[:, None]
    assert (np.abs(label_counts(chosen, y, 3) - exact) < 1).all()


@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.integers(0, 12), seeds)
@quick
def test_levelling_gives_everyone_the_least_and_takes_only_from_the_largest(
    sizes: list[int], least: int, seed: int
) -> None:
    if sum(sizes) < least * len(sizes) or not sum(sizes):
        return
    parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    found, moved, helped = level(parts, least, np.random.default_rng(seed))
    after = [len(part) for part in found]
    assert sorted(np.concatenate(found)) == list(range(sum(sizes)))
    assert moved == sum(max(least - s, 0) for s in sizes)
    assert helped == sum(s < least for s in sizes)
    assert all(a == least for a, s in zip(after, sizes, strict=True) if s < least)
    gave = [a for a, s in zip(after, sizes, strict=True) if a < s]
    assert not gave or max(gave) - min(gave) <= 1
    assert not gave or max(after) <= max(gave) + 1


@given(st.integers(1, 20), st.floats(1e-3, 1e3), seeds)
@quick
def test_dirichlet_counts_deal_every_sample(n: int, alpha: float, seed: int) -> None:
    totals = np.array([17, 0, 100])
    counts, _ = dirichlet_counts(totals, n, alpha, 0, np.random.default_rng(seed))
    assert (counts.sum(0) == totals).all()
    assert (counts >= 0).all()


def test_dirichlet_shares_have_the_mean_and_deviation_of_the_distribution() -> None:
    n, alpha = 5, 0.7
    draws = [
        dirichlet_counts(np.array([10**6]), n, alpha, 0, np.random.default_rng(s))[0][:, 0] / 10**6
        for s in range(2000)
    ]
    expected = np.sqrt((1 / n) * (1 - 1 / n) / (n * alpha + 1))
    assert np.allclose(np.mean(draws, 0), 1 / n, atol=0.02)
    assert np.allclose(np.std(draws, 0), expected, atol=0.02)


def test_a_hopeless_least_ends_after_the_redraws_with_the_best_draw() -> None:
    counts, draws = dirichlet_counts(np.array([50, 50]), 10, 0.05, 9, np.random.default_rng(0))
    assert draws == REDRAWS
    assert counts.sum() == 100


def test_more_draws_never_miss_more(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = []
    for draws in range(1, 12):
        monkeypatch.setattr(dealing, "REDRAWS", draws)
        counts, _ = dirichlet_counts(np.array([50, 50]), 10, 0.1, 9, np.random.default_rng(0))
        missing.append(int(np.maximum(9 - counts.sum(1), 0).sum()))
    assert missing == sorted(missing, reverse=True)
    assert missing[0] > missing[-1]


def test_a_possible_least_is_found_by_drawing_again() -> None:
    totals = np.full(10, 6000)
    counts, draws = dirichlet_counts(totals, 100, 0.1, 10, np.random.default_rng(1))
    assert counts.sum(1).min() >= 10
    assert draws < REDRAWS
