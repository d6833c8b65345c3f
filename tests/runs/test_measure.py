"""What a clustering is worth is measured again when something changed, and only then."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from coterie.core.types import State
from coterie.runs import measure

TRUTH = torch.tensor([0, 0, 1, 1])


def state() -> State:
    D = 1 - torch.block_diag(torch.ones(2, 2), torch.ones(2, 2))
    return State(torch.zeros(2, 3), TRUTH.clone(), memory={"distance": D})


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[State]:
    """The states that were measured for real."""
    seen: list[State] = []
    real = measure.fit

    def fit(state: State, truth: torch.Tensor | None) -> dict[str, float]:
        seen.append(state)
        return real(state, truth)

    monkeypatch.setattr(measure, "fit", fit)
    return seen


def test_the_same_clusters_in_the_next_round_cost_nothing(counted: list[State]) -> None:
    last, first = measure.LastFit(), state()
    again = replace(first, assign=first.assign.clone(), round=1)
    rows = [measure.grouped(s, None, TRUTH, last) for s in (first, again)]
    assert len(counted) == 1
    assert [r._replace(round=0) for r in rows[1]] == rows[0] == measure.grouped(first, None, TRUTH)


@pytest.mark.parametrize("what", ["clusters", "distances", "groups"])
def test_whatever_changes_is_measured_again(what: str) -> None:
    last, first = measure.LastFit(), state()
    last.fit(first, TRUTH)
    other, truth = first, TRUTH
    if what == "clusters":
        other = replace(first, assign=torch.tensor([0, 1, 0, 1]))
    elif what == "distances":
        other = first.hold(distance=first.memory["distance"].roll(1, 0))
    else:
        truth = TRUTH.flip(0).roll(1)
    assert last.fit(other, truth) == measure.fit(other, truth) != measure.fit(first, TRUTH)


def test_two_runs_side_by_side_do_not_share_what_they_remember(counted: list[State]) -> None:
    runs = measure.LastFit(), measure.LastFit()
    for last in (*runs, *runs):
        last.fit(state(), None)
    assert len(counted) == 4, "each has distances of its own"
