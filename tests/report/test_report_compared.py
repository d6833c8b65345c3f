"""The page of a comparison: its charts show the numbers of its runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.methods.fedavg import FedAvg
from coterie.methods.fedclust import FedClust
from coterie.methods.local import Local
from coterie.report.charts.compared import CHARTS
from coterie.report.charts.style import Absent
from coterie.report.compared import comparison_page
from coterie.runs.comparison import Comparison
from coterie.studies.comparison.running import compare
from tests import reported, tiny
from tests.reported import SCRIPT, SOLVER

METHODS = {
    "fedavg": FedAvg(SOLVER),
    "local": Local(SOLVER),
    SCRIPT: FedClust(SOLVER, warmup_epochs=2),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    out = tmp_path_factory.mktemp("compared") / "cmp"
    compare(METHODS, reported.population(), tiny.network(), rounds=2, seeds=2, out=out)
    return Comparison.load(out)


def traces(figure: Any, **have: Any) -> list[Any]:
    return [t for t in figure.data if all(t[k] == v for k, v in have.items())]


def test_curves_are_means_over_seeds(found: Comparison) -> None:
    (line,) = traces(CHARTS["curves"](found).figure(), name="local", showlegend=None)
    lines = [c.history.series("accuracy_mean") for c in found.of("local")]
    assert list(line.y) == [pytest.approx(np.mean([x[t] for x in lines])) for t in (0, 1, 2)]


def test_differences_are_paired_by_client_and_seed(found: Comparison) -> None:
    (box,) = traces(CHARTS["differences"](found).figure(), name="local")
    wanted = [
        100 * (found["local", s].accuracy[c] - found["fedavg", s].accuracy[c])
        for s in found.seeds
        for c in found["local", s].accuracy
    ]
    assert list(box.x) == wanted


def test_wins_are_those_of_the_tests(found: Comparison) -> None:
    bars = CHARTS["wins"](found).figure().data
    pairs = found.tests().pairs
    assert [list(b.x) for b in bars] == [
        [getattr(p.clients, word) for p in pairs] for word in ("wins", "ties", "losses")
    ]


def test_ranks_are_those_of_friedman(found: Comparison) -> None:
    test = found.tests().friedman_clients
    assert test
    for label in ("fedavg", "local"):
        (line,) = traces(CHARTS["ranks"](found).figure(), name=label)
        assert line.x[0] == test.ranks[label]


def test_nothing_beats_the_front_in_both(found: Comparison) -> None:
    (front,) = traces(CHARTS["pareto"](found).figure(), name="not beaten")
    for row in found.table():
        beaten = [
            y >= row["accuracy_last"] and x <= row["bytes"]
            for x, y in zip(front.x, front.y, strict=True)
        ]
        assert any(beaten)


def test_no_interval_is_drawn_beyond_all_or_nothing(found: Comparison) -> None:
    bars = [t for t in CHARTS["pareto"](found).figure().data if t.error_y.array]
    assert bars
    for bar in bars:
        assert bar.y[0] + bar.error_y.array[0] <= 1 + 1e-9
        assert bar.y[0] - bar.error_y.arrayminus[0] >= -1e-9


def test_a_label_is_never_markup(found: Comparison) -> None:
    page = comparison_page(found)
    assert SCRIPT not in page
    assert "&lt;script&gt;alert(1)" in page


def test_a_comparison_that_has_just_begun_has_a_page(found: Comparison, tmp_path: Path) -> None:
    text = (found.folder / "compare.toml").read_text()
    (tmp_path / "compare.toml").write_text(text)
    begun = Comparison.load(tmp_path)
    assert "No run of this comparison is done yet" in comparison_page(begun)
    with pytest.raises(Absent):
        CHARTS["ranks"](begun)
