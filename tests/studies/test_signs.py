"""The signs of how clients differ: what is noise, what is more, and what inspect says of it."""

from __future__ import annotations

import pytest
import torch

from coterie import inspect
from coterie.data.population import Population, partition
from coterie.studies.insight.signs import SIGNS, apart


def test_what_halves_differ_by_is_not_a_difference_of_clients() -> None:
    rng = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 300, 5, generator=rng)
    assert apart(a, b) < 0.05
    own = 3 * torch.randn(300, 5, generator=rng)
    assert apart(a + own, b + own) == pytest.approx(0.9, abs=0.03), "9 of 10 parts are their own"


def test_who_has_nothing_to_show_is_left_out() -> None:
    a = torch.tensor([[1.0], [2.0], [torch.nan]])
    assert apart(a, a) == 1.0
    assert apart(a[2:], a[2:]) == 0.0


LOUD = {  # kind -> signs that stand out, signs that are silent
    "iid": ((), ("labels", "inputs", "meaning", "updates", "groups", "sizes")),
    "label-groups": (("labels", "updates", "groups"), ("sizes",)),
    "rotation": (("inputs", "meaning", "groups"), ("labels", "contrast")),
    "permutation": (("meaning", "groups"), ("labels", "inputs")),
    "contrast": (("contrast",), ("labels",)),
    "iid+quantity": (("sizes",), ("labels", "inputs", "groups")),
}


@pytest.mark.parametrize("kind", LOUD)
def test_a_kind_of_difference_has_its_signs(kind: str) -> None:
    seen = inspect(partition("digits", kind, 12), "mclr", rounds=0)
    loud, silent = LOUD[kind]
    assert tuple(seen.signs) == SIGNS
    assert all(seen.signs[name] > 0.3 for name in loud)
    assert all(seen.signs[name] < 0.2 for name in silent)
    assert ("no groups" in seen.checked) == ("groups" in silent or kind == "contrast")


def test_flat_samples_with_one_number_have_signs_too() -> None:
    rows = [(torch.randn(12, 1) + i, torch.arange(12) % 2) for i in range(4)]
    seen = inspect(Population.of(rows), "mclr", rounds=0)
    assert seen.signs["inputs"] > 0.3
    assert all(0 <= value <= 1 for value in seen.signs.values())
