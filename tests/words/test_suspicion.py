"""Suspicion: who lies apart from its cluster, and who does not."""

from __future__ import annotations

import pytest
import torch

from coterie.core.types import Replies, State
from coterie.words.suspicion import COMPANY, ROUNDS, SEEN, apart, suspects, watch

HONEST = 12


def updates(seed: int = 0, spread: float = 0.5) -> torch.Tensor:
    """Honest ones: a common way, and what is each client's own."""
    rng = torch.Generator().manual_seed(seed)
    way = torch.randn(1, 40, generator=rng)
    return way + spread * torch.randn(HONEST, 40, generator=rng)


def rounds(rows: torch.Tensor, times: int, start: State | None = None) -> State:
    n = len(rows)
    state = start or State(torch.zeros(1, rows.shape[1]), torch.zeros(n, dtype=torch.long))
    for _ in range(times):
        state = watch(state, Replies(torch.arange(n), rows, torch.ones(n)))
    return state


@pytest.mark.parametrize("spread", [0.0, 0.1, 1.0])
def test_nobody_honest_is_suspected(spread: float) -> None:
    assert not suspects(rounds(updates(spread=spread), ROUNDS))


@pytest.mark.parametrize("factor", [-1.0, -10.0, 10.0, 0.0])
def test_who_turns_stretches_or_leaves_out_its_update_is_suspected(factor: float) -> None:
    rows = updates()
    rows[[2, 7]] *= factor
    assert set(suspects(rounds(rows, ROUNDS))) == {2, 7}


def test_once_is_not_enough() -> None:
    rows = updates()
    rows[4] *= -10
    state = rounds(updates(), 2, rounds(rows, 1))
    assert state.memory[SEEN][4, 0] == ROUNDS
    assert not suspects(state)


def test_in_a_small_cluster_nobody_can_tell() -> None:
    rows = updates()[: COMPANY - 1]
    rows[0] *= -10
    assert not rounds(rows, ROUNDS).memory[SEEN].any()


def test_updates_are_seen_from_the_model_of_the_cluster() -> None:
    far = State(torch.full((1, 40), 100.0), torch.zeros(HONEST, dtype=torch.long))
    rows = updates()
    rows[3] *= -1
    assert set(suspects(rounds(rows + 100, ROUNDS, far))) == {3}


def test_all_alike_is_nobody_apart() -> None:
    assert not apart(torch.zeros(6, 4)).any()
