"""Robust merging: the papers' formulas in NumPy, and what hostile rows cannot do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from coterie.config import ProblemsError, loads
from coterie.config.cross_checks import no_merge
from coterie.core.byzantine import BEYOND, hostile, needed
from coterie.core.errors import ConfigError
from coterie.core.loop import run
from coterie.core.types import Replies, State
from coterie.methods import METHODS, find
from coterie.methods.refusals import expect_possible
from coterie.methods.regrouping import divided
from coterie.words import mixing
from coterie.words.robust import LACKING, RULES, median, multi_krum, norm_clipped, trimmed_mean
from coterie.words.server import ServerOptimiser
from tests.test_contract import ROUNDS, last, method
from tests.tiny import federation, same

Array = NDArray[np.float64]
F = 2
NAMES = list(RULES)


def by_hand(name: str, rows: Array, f: int, start: Array) -> Array:
    """Each rule in NumPy, letter by letter."""
    m = len(rows)
    if name == "trimmed-mean":
        return np.sort(rows, 0)[f : m - f].mean(0)
    if name == "median":
        return np.median(rows, 0)
    if name == "multi-krum":
        D = ((rows[:, None] - rows[None]) ** 2).sum(2)
        scores = [np.sort(np.delete(D[i], i))[: m - f - 2].sum() for i in range(m)]
        return rows[np.argsort(scores, kind="stable")[: m - f]].mean(0)
    norms = np.linalg.norm(rows - start, axis=1)
    return start + ((rows - start) * np.minimum(1, np.median(norms) / norms)[:, None]).mean(0)


def drawn(seed: int = 0, m: int = 9, p: int = 7) -> Array:
    return np.random.default_rng(seed).normal(size=(m, p))


def merged(name: str, rows: Array, f: int = F, start: Array | None = None) -> Array:
    start = np.zeros(rows.shape[1]) if start is None else start
    found: Array = RULES[name](torch.from_numpy(rows), f, torch.from_numpy(start)).numpy()
    return found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("m", [7, 8, 20])
def test_the_rules_are_those_of_the_papers(name: str, m: int) -> None:
    rows, start = drawn(m, m), drawn(1, 1)[0]
    np.testing.assert_allclose(
        merged(name, rows, F, start), by_hand(name, rows, F, start), rtol=1e-12
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_the_clients_is_nothing(name: str) -> None:
    rows = drawn()
    again = rows[np.random.default_rng(3).permutation(len(rows))]
    np.testing.assert_allclose(merged(name, rows), merged(name, again), rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_added_to_all_is_added_to_the_result(name: str) -> None:
    rows, shift, start = drawn(), drawn(5, 1)[0], drawn(6, 1)[0]
    moved = merged(name, rows + shift, F, start + shift)
    np.testing.assert_allclose(moved, merged(name, rows, F, start) + shift, atol=1e-12)


numbers = st.floats(-1e6, 1e6, allow_nan=False)


@pytest.mark.parametrize("rule", [trimmed_mean, lambda rows, f: median(rows)])
@given(evil=st.lists(numbers, min_size=F, max_size=F), m=st.integers(2 * F + 1, 9))
@settings(max_examples=60, deadline=None)
def test_few_rows_cannot_move_a_number_beyond_the_honest_ones(
    rule: Callable[[Tensor, int], Tensor], evil: list[float], m: int
) -> None:
    honest = torch.from_numpy(drawn(2, m - F, 3))
    rows = torch.cat([honest, torch.tensor(evil, dtype=torch.float64)[:, None].repeat(1, 3)])
    found = rule(rows, F)
    assert (found >= honest.amin(0) - 1e-9).all()
    assert (found <= honest.amax(0) + 1e-9).all()


@given(evil=st.floats(1e3, 1e6))
@settings(max_examples=30, deadline=None)
def test_multi_krum_takes_none_that_is_far_away(evil: float) -> None:
    rows = np.concatenate([drawn(2, 7), np.full((F, 7), evil) + drawn(9, F)])
    assert np.abs(merged("multi-krum", rows)).max() < 10


def test_clipped_rows_move_a_model_no_farther_than_the_median_of_them() -> None:
    rows = drawn() * np.array([1.0] * 7 + [1e6] * 2)[:, None]
    assert np.linalg.norm(merged("norm-clip", rows)) <= np.median(np.linalg.norm(rows, axis=1))


@pytest.mark.parametrize("name", ["trimmed-mean", "multi-krum"])
def test_where_nobody_is_hostile_everybody_counts(name: str) -> None:
    rows = drawn()
    np.testing.assert_allclose(merged(name, rows, 0), rows.mean(0), rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_of_equal_rows_the_merge_is_that_row(name: str) -> None:
    row = drawn(4, 1)
    np.testing.assert_allclose(merged(name, np.repeat(row, 7, 0)), row[0], rtol=1e-12)


def test_too_few_rows_are_refused() -> None:
    rows = torch.zeros(4, 2)
    with pytest.raises(ValueError, match="nothing is left"):
        trimmed_mean(rows, 2)
    with pytest.raises(ValueError, match="takes 5 rows"):
        multi_krum(rows, 1)


# -- cluster by cluster


def answers(state: State, seed: int = 0) -> Replies:
    n = len(state.assign)
    values = torch.from_numpy(drawn(seed, n, state.models.shape[1]))
    return Replies(torch.arange(n), values, torch.arange(1.0, n + 1).double())


def clusters(*sizes: int) -> State:
    assign = torch.cat([torch.full((m,), c) for c, m in enumerate(sizes)])
    return State(torch.zeros(len(sizes), 7, dtype=torch.float64), assign)


@pytest.mark.parametrize("name", NAMES)
def test_each_cluster_is_merged_by_itself_and_everybody_counts_alike(name: Any) -> None:
    state = clusters(10, 7)
    w = answers(state)
    after = ServerOptimiser(merge=name).merged(state, w)
    for c in (0, 1):
        rows = w.values[state.assign == c].numpy()
        want = by_hand(name, rows, hostile(len(rows), 0.2), np.zeros(7))
        np.testing.assert_allclose(after.models[c].numpy(), want, rtol=1e-12)


def test_a_cluster_of_too_few_answers_keeps_its_model_and_says_so() -> None:
    state = replace(clusters(10, 4), round=3)
    after = ServerOptimiser(merge="multi-krum").merged(state, answers(state))
    assert not torch.equal(after.models[0], state.models[0])
    assert torch.equal(after.models[1], state.models[1])
    assert after.memory[LACKING].tolist() == [[3, 1, 4, 5]]


def test_who_is_alone_in_its_cluster_trains_on() -> None:
    state = clusters(10, 1)
    w = answers(state)
    after = ServerOptimiser(merge="median").merged(state, w)
    assert torch.equal(after.models[1], w.values[10])
    assert LACKING not in after.memory


def test_one_answer_of_a_larger_cluster_moves_nothing() -> None:
    state = clusters(10, 5)
    w = answers(state)
    some = replace(w, clients=w.clients[:11], values=w.values[:11], sizes=w.sizes[:11])
    after = ServerOptimiser(merge="median").merged(state, some)
    assert torch.equal(after.models[1], state.models[1])
    assert after.memory[LACKING][0, 1:].tolist() == [1, 1, 3]


def test_only_the_columns_that_were_sent_change() -> None:
    state = clusters(6)
    w, columns = answers(state), torch.tensor([1, 2, 5])
    w = replace(w, values=w.values[:, columns])
    after = ServerOptimiser(merge="median").merged(state, w, columns)
    np.testing.assert_allclose(after.models[0, columns], np.median(w.values, 0), rtol=1e-12)
    assert not after.models[0, [0, 3, 4, 6]].any()


def test_without_a_robust_merge_it_is_the_plain_one() -> None:
    state = clusters(10, 4)
    w, flag = answers(state), ServerOptimiser(flag=True)
    plain = mixing.merge(state, w)
    assert same(ServerOptimiser().merged(state, w), plain)
    assert torch.equal(flag.merged(state, w).models, plain.models)


def test_every_rule_is_known_everywhere() -> None:
    rules = get_args(get_type_hints(ServerOptimiser, include_extras=True)["merge"])
    assert set(rules) == {"mean", *RULES} == {"mean", *BEYOND}


@given(st.integers(1, 200), st.floats(0.01, 0.49))
@settings(max_examples=100, deadline=None)
def test_a_share_is_never_fewer_than_it_says(n: int, share: float) -> None:
    assert hostile(n, share) >= share * n - 1e-6
    assert hostile(n, share) < share * n + 1


# -- in methods

MERGING = [name for name in METHODS if not no_merge(name)]


@pytest.mark.parametrize("name", MERGING)
def test_a_method_that_averages_can_do_so_robustly(name: str) -> None:
    made: Any = method(name)
    expect_possible(robust := replace(made, server=ServerOptimiser(merge="median")))
    plain = last(run(made, federation(), ROUNDS))
    end = last(run(robust, federation(), ROUNDS))
    assert torch.isfinite(end.models).all()
    assert not same(end, plain)


@pytest.mark.parametrize("name", [name for name in METHODS if no_merge(name)])
def test_a_method_that_does_not_average_by_cluster_says_why(name: str) -> None:
    with pytest.raises(ProblemsError, match=f"not with {name}") as caught:
        loads(f"method = '{name}'\n[server]\nmerge = 'median'")
    assert "choose a method that averages: kin, fedavg" in str(caught.value)
    if "server" in find(name).__dataclass_fields__:  # type: ignore[attr-defined]
        made: Any = method(name)
        with pytest.raises(ConfigError, match="merge = median"):
            expect_possible(replace(made, server=ServerOptimiser(merge="median")))


def test_a_cohort_too_small_is_refused_before_anything_runs() -> None:
    text = "method = '{}'\n[train]\nparticipation = 0.2\n[server]\nmerge = '{}'"
    loads(text.format("fedavg", "trimmed-mean"))
    for name in ("fedavg", "ifca"):
        with pytest.raises(ProblemsError, match="takes 5 answers where 1 of 4"):
            loads(text.format(name, "multi-krum"))


@pytest.mark.parametrize("rule", NAMES)
def test_what_validation_asks_for_is_what_merging_takes(rule: str) -> None:
    enough = [m for m in range(2, 30) if m >= needed(rule, m, 0.3)]
    for m in range(2, 30):
        after = ServerOptimiser(merge=rule, byzantine=0.3).merged(clusters(m), answers(clusters(m)))  # type: ignore[arg-type]
        assert (LACKING not in after.memory) == (m in enough)


def test_groups_that_part_start_from_robust_means() -> None:
    state = clusters(12)
    w = answers(state)
    w.values[3] = 1e6
    labels = torch.arange(12) % 2
    for server, hurt in ((ServerOptimiser(), True), (ServerOptimiser(merge="median"), False)):
        parted = divided(state, 0, w, labels, server)
        assert parted.k == 2
        assert bool(parted.models.abs().max() > 10) == hurt


def test_norm_clipping_starts_from_the_model_before() -> None:
    start = torch.tensor([1.0, 1.0])
    rows = torch.tensor([[1.0, 2.0], [1.0, 2.0], [1.0, 101.0]])
    assert norm_clipped(rows, start).tolist() == [1.0, 2.0]
