"""Row 32: a fifth of the clients flip or stretch their updates; a robust merge holds.

The bounds are the scorecard's: a robust merge loses 3 points at most, where the plain mean loses 20
or more (or the attack was none). Updates that are scaled by ten harm it less: on seeds that nothing
was chosen by, 10 or more are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import coterie as ct
from coterie.attacks.attack import Attack
from coterie.config import ProblemsError, loads
from coterie.words.server import ServerOptimiser
from tests.security.hostile import SCALING, SEEDS, ended, fallen, in_every_group

FALLS, HOLDS = {"sign-flip": 20.0, "scaling": 10.0}, 3.0
RULES = ("trimmed-mean", "multi-krum")
FLIP = Attack(kind="sign-flip")
CASES = [
    pytest.param("fedavg", FLIP, "mclr", id="sign-flip"),
    pytest.param("fedavg", SCALING, "mlp", id="scaling"),
    pytest.param("fedclust", FLIP, "mclr", id="sign-flip-in-clusters-of-fedclust"),
]
MORE = [
    pytest.param("ifca", FLIP, "mclr", id="sign-flip-in-clusters-of-ifca"),
    pytest.param("kin", FLIP, "mclr", id="sign-flip-in-clusters-of-kin"),
]

pytestmark = pytest.mark.row(32)


@pytest.mark.parametrize(("method", "attack", "network"), CASES)
def test_the_plain_mean_falls_and_robust_merges_hold(
    method: str, attack: Attack, network: str
) -> None:
    assert fallen(method, "mean", attack, [0], network) >= FALLS[attack.kind]
    for rule in RULES:
        assert fallen(method, rule, attack, [0], network) <= HOLDS


@pytest.mark.slow
@pytest.mark.parametrize(("method", "attack", "network"), [*CASES, *MORE])
def test_over_five_seeds_the_plain_mean_falls_and_robust_merges_hold(
    method: str, attack: Attack, network: str, figure: Callable[..., None]
) -> None:
    lost = {rule: fallen(method, rule, attack, SEEDS, network) for rule in ("mean", *RULES)}
    for rule, points in lost.items():
        figure(f"points lost to {attack.kind}, {method} by {rule}", round(points, 1), by="most")
    assert lost.pop("mean") >= FALLS[attack.kind]
    assert max(lost.values()) <= HOLDS


def test_every_cluster_has_attackers_and_is_large_enough() -> None:
    """Or the rows above would say nothing of clusters."""
    run = ended("fedclust", "mean", FLIP, 0)
    assert in_every_group(run) == {0: (2, 10), 1: (2, 10)}


@pytest.mark.parametrize("rule", RULES)
def test_nobody_is_hurt_where_nobody_attacks(rule: str) -> None:
    assert fallen("fedavg", rule, Attack(), [0]) <= 1.5


def test_too_few_for_krum_in_one_cluster_are_refused_or_keep_their_model() -> None:
    with pytest.raises(ProblemsError, match="takes 5 answers where 1 of 4 may be hostile"):
        loads("method = 'fedavg'\n[partition]\nclients = 4\n[server]\nmerge = 'multi-krum'")
    people = ct.partition("digits", "rotation:0,90", clients=8, seed=0)  # four in each cluster
    heard: list[Any] = []
    result = ct.fit(
        ct.Oracle(ct.Solver(epochs=1), server=ServerOptimiser(merge="multi-krum")),
        people,
        "mclr",
        rounds=2,
        engine="serial",
        on_event=heard.append,
    )
    told = [(e["cluster"], e["answers"], e["needed"]) for e in heard if e["event"] == "unmerged"]
    assert told == [(0, 4, 5), (1, 4, 5)]
    assert (result.state.models == result.state.models[0]).all()  # as they began
    assert result.summary["unmerged"] == 4
