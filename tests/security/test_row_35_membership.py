"""Row 35: who was trained on, by loss: an area with its interval, and controls."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from coterie.audit import controls
from coterie.audit.membership import area, shuffled
from coterie.core.rng import stream
from coterie.methods.fedclust import FedClust
from coterie.tasks import Solver
from tests.security.audited import auditor, small

pytestmark = pytest.mark.row(35)
losses = st.lists(st.integers(0, 6).map(float), min_size=1, max_size=30)


@given(losses, losses)
def test_the_area_is_that_of_scikit_learn(members: list[float], others: list[float]) -> None:
    found = area(torch.tensor(members).double(), torch.tensor(others).double())
    truth = [1] * len(members) + [0] * len(others)
    want = roc_auc_score(truth, [-x for x in (*members, *others)])
    assert found.auc == pytest.approx(want, abs=1e-4)
    assert found.low <= found.auc <= found.high


def test_the_interval_holds_a_half_in_about_95_of_100_where_nothing_is_told(
    figure: Callable[..., None],
) -> None:
    rng = stream(0, "null")
    inside = 0
    for _ in range(400):
        a, b = torch.rand(2, 40, generator=rng, dtype=torch.float64)
        found = area(a, b)
        inside += found.low <= 0.5 <= found.high
    figure("share of 400 intervals that hold a half where nothing is told", inside / 400)
    assert 0.91 <= inside / 400 <= 0.985


def test_a_model_that_knows_its_samples_by_heart_tells_them(figure: Callable[..., None]) -> None:
    by_heart, drawn = controls.of_membership(small(), auditor().x, auditor().y, seed=0)
    figure("control: AUC of a model that knows its samples by heart", round(by_heart.value, 3))
    figure("control: AUC of members drawn at random", round(drawn.value, 3))
    assert by_heart.value >= 0.7
    assert by_heart.passed
    assert drawn.value == pytest.approx(0.5, abs=0.05)
    assert drawn.passed


def test_drawn_members_are_not_told_however_different_the_losses_are() -> None:
    members, others = torch.zeros(60).double(), torch.ones(60).double()
    assert area(members, others).auc == 1.0
    assert shuffled(members, others, stream(0, "shuffle")) == pytest.approx(0.5, abs=0.05)


@pytest.mark.slow
def test_an_audit_tells_members_of_every_cluster_and_client(figure: Callable[..., None]) -> None:
    method = FedClust(solver=Solver(lr=0.05), clusters=2, fraction=1.0)
    found = auditor().audit(method, "fedclust", rounds=1, planned=1)
    whose = [m.whose for m in found.members]
    for member in found.members[:2]:
        auc, low, high = member.area.auc, member.area.low, member.area.high
        figure(f"AUC of {member.whose}", f"{auc:.2f} ({low:.2f} to {high:.2f})")
    assert whose[:2] == ["cluster 0", "cluster 1"]
    assert len([name for name in whose if name.startswith("client")]) == len(auditor().who)
    assert all(m.area.low <= m.area.auc <= m.area.high for m in found.members)
