"""Drift in its patterns, and clients that come later: identities of who has which samples when."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

import coterie as ct
from coterie.core.errors import DataError
from coterie.data.partition import divide
from coterie.data.population import Population, partition
from tests.data.labelled import labelled


def same(a: Population, b: Population) -> bool:
    """Whether every client has the same samples, in the same order."""
    return all(
        torch.equal(getattr(x, name), getattr(y, name))
        for x, y in zip(a, b, strict=True)
        for name in ("x", "y", "x_test", "y_test")
    )


def people(drift: str, kind: str = "rotation", **how: object) -> Population:
    return partition("digits", f"{kind}+{drift}", clients=8, seed=3, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["rotation:0,30", "permutation:2", "label-groups+rotation:2"])
def test_a_gradual_change_in_one_round_is_a_sudden_one(kind: str) -> None:
    sudden = people("drift:4,0.5", kind)
    gradual = people("drift:4,0.5,gradual,1", kind)
    for t in (0, 3, 4, 9):
        assert same(sudden.at(t), gradual.at(t))
        assert torch.equal(sudden.at(t).group, gradual.at(t).group)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["rotation:0,30", "permutation:2"])
def test_a_gradual_change_ends_as_a_sudden_one_and_loses_no_sample_on_its_way(kind: str) -> None:
    start, moved = people("drift:4,0.5,gradual,4", kind), people("drift:4,0.5", kind).at(4)
    assert start.at(3) is start
    assert same(start.at(7), moved)
    assert start.at(7) is start.at(20)
    pool = torch.cat(start.partition.train).sort().values
    moves = start.partition.moves
    assert moves is not None
    for t, share in ((4, 0.25), (5, 0.5), (6, 0.75)):
        now = start.at(t)
        assert torch.equal(torch.cat(now.partition.train).sort().values, pool)
        assert int(now.label_counts().sum()) == len(pool)
        for i, j in enumerate(moves.tolist()):
            own = set(start.partition.train[i].tolist()) & set(now.partition.train[i].tolist())
            left = len(start.partition.train[i])
            assert len(own) == (left - int(share * left + 0.5) if i != j else left)
        truth = start.group if t == 4 else moved.group
        assert truth is not None
        assert torch.equal(now.group, truth)  # type: ignore[arg-type]


def test_on_its_way_a_sample_is_seen_as_whoever_it_came_from_saw_it() -> None:
    start = people("drift:4,0.5,gradual,2", "permutation:2")
    now, moves = start.at(4), start.partition.moves
    assert moves is not None
    i = int((moves != torch.arange(8)).nonzero()[0])
    j = int(moves[i])
    index = now.partition.train[i].tolist()
    for k, sample in enumerate(index):
        owner = i if sample in start.partition.train[i].tolist() else j
        at = start.partition.train[owner].tolist().index(sample)
        assert torch.equal(now[i].x[k], start[owner].x[at])
        assert now[i].y[k] == start[owner].y[at]
    assert torch.equal(now.label_counts()[i], torch.bincount(now[i].y, minlength=10))
    assert {len(now[i].y_test), len(now[j].y_test)} <= {len(c.y_test) for c in (*start, *now)}


def test_what_leaves_stays_gone_until_all_have_left() -> None:
    start = people("drift:2,0.5,gradual,5")
    before = [set(part.tolist()) for part in start.partition.train]
    own = [
        [
            set(part.tolist()) & mine
            for part, mine in zip(start.at(t).partition.train, before, strict=True)
        ]
        for t in range(1, 8)
    ]
    for earlier, later in pairwise(own):
        assert all(a >= b for a, b in zip(earlier, later, strict=True))


def test_a_state_that_recurs_is_the_beginning_again_bit_for_bit() -> None:
    there = people("drift:3,0.5,recurring,2")
    moved = people("drift:3,0.5").at(3)
    for t in range(12):
        away = t >= 3 and (t - 3) // 2 % 2 == 0
        assert same(there.at(t), moved if away else there)
        assert (there.at(t) is there) is not away
    assert there.course.turns(9) == [3, 5, 7, 9]


def test_a_sudden_drift_is_known_by_the_key_it_always_had() -> None:
    made = divide(labelled(), "rotation+drift:7", 20, 0)
    assert made.arguments["kind"]["drift"] == {"round": 7, "share": 0.2}
    other = divide(labelled(), "rotation+drift:7,0.2,gradual,3", 20, 0)
    assert other.arguments["kind"]["drift"]["pattern"] == "gradual"
    assert made.key != other.key
    assert str(ct.Drift(7, 0.2, "gradual", 3)) == "drift:round=7,pattern=gradual,span=3"


def test_who_arrives_is_drawn_once_and_comes_in_its_round() -> None:
    made = partition("digits", "rotation+arrivals:4,0.4,3", clients=8, seed=3)
    plain = partition("digits", "rotation", clients=8, seed=3)
    assert same(made, plain), "their samples are theirs"
    arrives = made.arrives
    assert arrives is not None
    late = arrives[arrives > 0].sort().values
    assert late.tolist() == [4, 5, 6]
    for t in (-1, 0, 3):
        assert made.away(t).tolist() == (arrives > 0).tolist()  # type: ignore[union-attr]
    assert made.away(5).sum() == 1  # type: ignore[union-attr]
    assert made.away(6) is None
    assert plain.away(0) is None
    at_once = partition("digits", "rotation+arrivals:4,1", clients=8, seed=3).arrives
    assert at_once is not None
    assert sorted(at_once.tolist()) == [0, *[4] * 7], "somebody is there from the start"
    with pytest.raises(DataError, match="one client alone"):
        partition("digits", "arrivals", clients=1)


def test_validation_samples_drift_with_the_others() -> None:
    start = people("drift:2,0.5,gradual,2", "rotation:0,30", validation_share=0.25)
    moves = start.partition.moves
    assert moves is not None
    i = int((moves != torch.arange(8)).nonzero()[0])
    own, now = (set(p.partition.validation[i].tolist()) for p in (start, start.at(2)))
    assert len(own & now) == len(own) - int(len(own) / 2 + 0.5)
    assert len(start.at(2)[i].y_val) == len(now)
    j = int(moves[i])
    assert torch.equal(start.at(3)[i].x_val, start[j].x_val)
