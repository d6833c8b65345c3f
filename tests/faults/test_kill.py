"""A process that is killed at a chosen moment of a round, and resumed, leaves the same bytes."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from coterie.core.points import POINTS
from tests.faults.commands import saved_rounds, strays, train, written
from tests.faults.points import killed_at, reached

METHODS = ("fedavg", "ifca", "fedclust", "autocfl")
KILLS = 12  # of each


def going(method: str, folder: Path) -> Callable[[], object]:
    """A run of a method, or its resume."""
    return partial(
        train,
        folder,
        method=method,
        train__rounds=4,
        partition__clients=6,
        **({} if method == "autocfl" else {"train__participation": 0.5}),
    )


@pytest.mark.row(1)
@pytest.mark.thorough
@pytest.mark.parametrize("method", METHODS)
def test_killed_at_twelve_moments_of_its_rounds_the_bytes_are_the_same(
    method: str, tmp_path: Path, figure: Callable[..., None]
) -> None:
    points = reached(going(method, tmp_path / "whole"))
    expected = written(tmp_path / "whole")
    for n in sorted(random.Random(method).sample(range(1, len(points) + 1), KILLS)):
        folder = tmp_path / str(n)
        killed_at(n, going(method, folder))
        done = [p for p in points[: n - 1] if p.startswith("committed ")]
        newest = max(saved_rounds(folder).get("checkpoints", [-1]))
        assert newest - len(done) in (-1, 0), "the end of this round, or of the one before"
        going(method, folder)()
        assert written(folder) == expected, f"killed at {points[n - 1]}"
        assert strays(folder) == []
        figure("process kills", 1)
        figure("identical resumes", 1)


@pytest.mark.row(1)
@pytest.mark.slow
def test_killed_again_and_again_the_bytes_are_the_same(
    tmp_path: Path, figure: Callable[..., None]
) -> None:
    """The run and each of its resumes dies: in the answers, the records, the commit."""
    points = reached(going("fedclust", tmp_path / "whole"))
    folder = tmp_path / "killed"
    done = 0
    for kind in ("round", "heard", "recorded", "commit", "committed"):
        place = 1 + next(i for i, p in enumerate(points) if p.split()[0] == kind)
        killed_at(place + (kind == "heard"), going("fedclust", folder))
        done += 1
    going("fedclust", folder)()
    assert written(folder) == written(tmp_path / "whole")
    assert strays(folder) == []
    figure("process kills", done)
    figure("identical resumes", done)  # each was followed by one


def test_a_run_reaches_its_points_in_their_order(tmp_path: Path) -> None:
    work = partial(train, tmp_path / "r", method="local", train__rounds=1)
    kinds = [point.split()[0] for point in reached(work)]
    heard = [i for i, kind in enumerate(kinds) if kind == "heard"]
    assert set(kinds) < set(POINTS)
    last = {k: len(kinds) - 1 - kinds[::-1].index(k) for k in kinds}
    assert last["round"] < heard[-1] < last["recorded"] < last["commit"] < last["committed"]
