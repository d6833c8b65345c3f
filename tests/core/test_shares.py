"""Nobody counts for more than its share; where nobody would, nothing changes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from coterie.core.shares import capped, held_back

SIZES = st.lists(st.integers(1, 10**9), min_size=1, max_size=8)
MOST = st.floats(0.05, 1.0)


def tensor(sizes: list[int]) -> Tensor:
    return torch.tensor(sizes, dtype=torch.float64)


@given(SIZES, MOST)
@pytest.mark.row(16, counts="false numbers of samples")
def test_nobody_of_more_than_two_is_above_its_share(sizes: list[int], most: float) -> None:
    given, kept = tensor(sizes), capped(tensor(sizes), most)
    if len(sizes) <= 2:
        assert kept.equal(given)
        return
    assert float(kept.max() / kept.sum()) <= max(most, 1 / len(sizes)) * (1 + 1e-9)
    assert bool((kept <= given).all())
    assert bool((kept > 0).all())


@given(SIZES, MOST)
def test_who_is_below_keeps_its_weight_beside_others_who_are(sizes: list[int], most: float) -> None:
    given = tensor(sizes)
    if float(given.max()) <= most * float(given.sum()):
        assert capped(given, most) is given  # to the bit


@pytest.mark.row(16, counts="false numbers of samples")
def test_a_share_is_one_of_the_cluster() -> None:
    sizes, labels = tensor([1, 1, 98, 98, 60, 60]), torch.tensor([0, 0, 0, 1, 1, 1])
    assert capped(sizes, 0.5, labels).tolist() == [1, 1, 2, 98, 60, 60]
    told = held_back(torch.arange(6), labels, sizes, sizes, 0.5)
    assert told == {2: (0.98, 0.5)}
