"""Row 33: label flips, free-riders and captured clusters leave other clusters alone, and are seen.

The bounds are the scorecard's: honest clients of clusters without an attacker lose 1 point at most,
and four of five attackers are suspected where nothing is done against them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coterie.attacks.attack import Attack
from tests.security.hostile import SEEDS, captured, ended, fallen, inside

LOSES, SEEN = 1.0, 0.8
KINDS = ("label-flip", "free-rider", "cluster-capture")
TOUCHED, UNTOUCHED = 0, 1

pytestmark = pytest.mark.row(33)


def attack_on(kind: str, seed: int) -> Attack:
    """Two attackers in the first planted group, or two of the second that pass for it."""
    return captured(TOUCHED) if kind == "cluster-capture" else inside(kind, TOUCHED, seed)


def lost(method: str, merge: str, kind: str, seeds: list[int], group: int) -> float:
    found = [fallen(method, merge, attack_on(kind, s), [s], group=group) for s in seeds]
    return sum(found) / len(found)


@pytest.mark.parametrize("kind", KINDS)
def test_an_untouched_cluster_loses_nothing(kind: str) -> None:
    assert lost("fedclust", "trimmed-mean", kind, [0], UNTOUCHED) <= LOSES


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["fedclust", "kin"])
def test_over_five_seeds_an_untouched_cluster_loses_nothing(
    method: str, kind: str, figure: Callable[..., None]
) -> None:
    points = lost(method, "trimmed-mean", kind, list(SEEDS), UNTOUCHED)
    figure("most points that an untouched cluster lost", round(points, 1), by="most")
    assert points <= LOSES


def test_a_captured_cluster_falls_with_the_plain_mean_and_holds_with_a_robust_one() -> None:
    """The control: the attackers do get in, and do poison."""
    assert lost("fedclust", "mean", "cluster-capture", [0], TOUCHED) >= 20
    assert lost("fedclust", "trimmed-mean", "cluster-capture", [0], TOUCHED) <= 3


@pytest.mark.slow
def test_over_five_seeds_a_captured_cluster_holds(figure: Callable[..., None]) -> None:
    plain, robust = (
        lost("fedclust", merge, "cluster-capture", list(SEEDS), TOUCHED)
        for merge in ("mean", "trimmed-mean")
    )
    figure("points lost by a captured cluster, by mean", round(plain, 1), by="most")
    figure("points lost by a captured cluster, by trimmed-mean", round(robust, 1), by="most")
    assert plain >= 20
    assert robust <= 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("merge", "lies"), [("mean", False), ("mean", True), ("trimmed-mean", False)]
)
def test_over_five_seeds_kin_is_not_captured(
    merge: str, lies: bool, figure: Callable[..., None]
) -> None:
    """The honest clients leave whom the model of the captured cluster does not fit any more."""
    points = fallen("kin", merge, captured(TOUCHED, lies), SEEDS, group=TOUCHED)
    figure("most points lost by a captured cluster of kin", round(points, 1), by="most")
    assert points <= 3


def seen(kind: str, seeds: list[int]) -> tuple[float, float]:
    """Of the attackers the share that is suspected with a plain mean, and of the honest ones."""
    method = "fedclust" if kind == "cluster-capture" else "fedavg"
    attack = captured(TOUCHED) if kind == "cluster-capture" else Attack(kind=kind)  # type: ignore[arg-type]
    runs = [ended(method, "mean", attack, s) for s in seeds]
    wrong = sum(len(r.suspects - r.attackers) for r in runs) / sum(len(r.honest) for r in runs)
    return sum(r.recall for r in runs) / len(runs), wrong


@pytest.mark.parametrize("kind", KINDS)
def test_attackers_are_suspected_and_others_are_not(kind: str) -> None:
    recall, wrong = seen(kind, [0])
    assert recall >= SEEN
    assert wrong <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, "sign-flip", "scaling"])
def test_over_five_seeds_attackers_are_suspected_and_others_are_not(
    kind: str, figure: Callable[..., None]
) -> None:
    recall, wrong = seen(kind, list(SEEDS))
    figure(f"share of attackers suspected, {kind}", round(recall, 2), by="least")
    figure("most honest clients suspected, as a share", round(wrong, 3), by="most")
    assert recall >= SEEN
    assert wrong <= 0.05


def test_nobody_is_suspected_where_nobody_attacks() -> None:
    assert not ended("fedavg").suspects
    assert not ended("fedclust").suspects
