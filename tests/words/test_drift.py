from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from coterie.words.drift import lean, sides


def drawn(seed: int, *shape: int) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


@given(seed=st.integers(0, 999))
def test_nobody_leans_to_its_own_cluster(seed: int) -> None:
    assign = torch.arange(9) % 3
    leaning = lean(drawn(seed, 9, 5), drawn(seed + 1, 3, 5), assign)
    assert (leaning[torch.arange(9), assign].abs() < 1e-6).all()


@given(seed=st.integers(0, 999))
def test_leaning_does_not_depend_on_how_long_a_client_trained(seed: int) -> None:
    pull, heads, assign = drawn(seed, 8, 5), drawn(seed + 1, 2, 5), torch.arange(8) % 2
    longer = pull * torch.arange(1, 9)[:, None]
    torch.testing.assert_close(lean(longer, heads, assign), lean(pull, heads, assign))


@given(seed=st.integers(0, 999))
def test_renumbering_clients_renumbers_who_leans(seed: int) -> None:
    pull, heads, assign = drawn(seed, 8, 5), drawn(seed + 1, 2, 5), torch.arange(8) % 2
    order = torch.randperm(8, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(
        lean(pull[order], heads, assign[order]), lean(pull, heads, assign)[order]
    )


def test_the_unplaced_and_the_silent_do_not_lean() -> None:
    pull = drawn(0, 4, 5)
    pull[1] = 0
    leaning = lean(pull, drawn(1, 2, 5), torch.tensor([-1, 0, 0, 1]))
    assert (leaning[:2] == 0).all()


@given(seed=st.integers(0, 999))
def test_two_opposite_camps_are_told_apart(seed: int) -> None:
    way = drawn(seed, 20)
    camp = torch.tensor([1.0, 1, 1, -1, -1, -1], dtype=torch.float64)
    labels, alike = sides(camp[:, None] * way + 0.1 * drawn(seed + 1, 6, 20))
    assert labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert alike < -0.5


def test_a_single_dissenter_is_no_side() -> None:
    pull = torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, -0.1], [-1.0, 0.0]])
    labels, alike = sides(pull)
    assert alike == 1
    assert not labels.any()
