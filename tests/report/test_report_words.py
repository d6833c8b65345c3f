"""What a page says in words: against what, by how much, and of whom."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

import coterie as ct
from coterie.methods.fedavg import FedAvg, FedAvgFT
from coterie.methods.fedclust import FedClust
from coterie.methods.ifca import IFCA
from coterie.methods.local import Local
from coterie.report import verdict
from coterie.report.charts import CHARTS
from coterie.report.charts.style import Absent, Flat
from coterie.report.compared import comparison_page
from coterie.report.page import look, run_page
from coterie.runs.comparison import Comparison
from tests import reported
from tests.reported import SOLVER

CLUSTERED = FedClust(SOLVER, warmup_epochs=2)


def text(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page.split("<main>")[-1])).split())


def test_nothing_is_compared_with_an_untrained_network(tmp_path: Path) -> None:
    reported.trained(CLUSTERED, tmp_path / "alone/fedclust")
    run = look(tmp_path / "alone/fedclust")
    with pytest.raises(Absent, match="coterie compare --methods local,fedavg,fedclust"):
        CHARTS["gains"](run).figure()
    page = run_page(run)
    assert 'data-chart="gains"' not in page
    assert "would have otherwise" not in page
    assert "points over" not in page
    assert "coterie compare --methods local,fedavg,fedclust" in text(page)


def test_before_adaptation_is_called_so(tmp_path: Path) -> None:
    reported.trained(FedAvgFT(SOLVER), tmp_path / "alone/tuned")
    page = run_page(look(tmp_path / "alone/tuned"))
    assert 'data-chart="gains"' in page
    assert "points over before adaptation" in page


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("beside")
    for name, method in {"a": FedAvg(SOLVER), "l": Local(SOLVER), "f": CLUSTERED}.items():
        reported.trained(method, home / name)
    return home


def test_the_headline_and_the_curve_have_the_references(beside: Path) -> None:
    run = look(beside / "f")
    fedavg, local = (look(beside / name) for name in ("a", "l"))
    points = 100 * (run.final - fedavg.final).mean()
    better = int((run.final > fedavg.final).sum())
    said = verdict.sentence(run)
    assert f"{points:+.1f} points over FedAvg, better for {better} of {run.n} clients" in said
    assert "points over local only" in said
    curves = {t.name: list(t.y) for t in CHARTS["accuracy"](run).figure().data if t.name}
    assert curves["FedAvg"] == fedavg.series("accuracy_mean").values.tolist()
    assert curves["local only"] == local.series("accuracy_mean").values.tolist()
    assert "points over FedAvg" in text(run_page(run)), "a column for each in the table"


def test_clusters_that_never_change_are_told_in_a_sentence(beside: Path) -> None:
    run = look(beside / "f")
    counts = sorted(((run.assign[-1] == c).sum() for c in run.clusters), reverse=True)
    with pytest.raises(Flat, match=f"{len(counts)} clusters of {counts[0]}"):
        CHARTS["sizes"](run).figure()
    with pytest.raises(Flat, match=r"ARI with the planted groups \d\.\d\d"):
        CHARTS["agreement"](run).figure()
    page = run_page(run)
    assert 'data-chart="sizes"' not in page
    assert 'data-chart="agreement"' not in page
    assert 'data-chart="river"' in page
    assert text(page).count("not changed since") == 2


def test_clusters_that_move_are_drawn(tmp_path: Path) -> None:
    moves = reported.large()
    assert CHARTS["sizes"](moves).figure().data
    assert CHARTS["agreement"](moves).figure().data


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    out = tmp_path_factory.mktemp("compared") / "c"
    methods = {"fedavg": FedAvg(), "local": Local(), "fedclust": FedClust(), "ifca": IFCA()}
    people = ct.partition("digits", "rotation", clients=4)
    return ct.compare(methods, people, "mclr", rounds=2, seeds=2, out=out)


def test_pairs_of_methods_are_a_matrix(compared: Comparison) -> None:
    page = comparison_page(compared)
    table = re.search(r"Each against each.*?</table>", page, re.S)
    assert table
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in table[0].split("<tr>")[2:]]
    assert [row[0] for row in rows] == list(compared.methods)
    assert [row[1 + i] for i, row in enumerate(rows)] == ["–"] * 4
    means = {m: [c.numbers["accuracy_mean"] for c in compared.of(m)] for m in compared.methods}
    first, second = means["local"], means["fedavg"]
    points = 100 * (sum(first) - sum(second)) / 2
    won = sum(a > b for a, b in zip(first, second, strict=True))
    assert rows[1][1].replace("*", "") == f"{points:+.1f} ({won}/2)"
    assert rows[0][2].startswith(f"{-points:+.1f}")
    assert "is better than" not in text(page)
    assert "Mean ranks" in text(page)


def test_two_methods_keep_their_sentence(tmp_path: Path) -> None:
    people = ct.partition("digits", "rotation", clients=4)
    two = {"fedavg": FedAvg(), "local": Local()}
    found = ct.compare(two, people, "mclr", rounds=1, seeds=1, out=tmp_path / "c")
    page = comparison_page(found)
    assert "Each against each" not in page
    assert found.tests().pairs[0].sentence in text(page)


def test_fewest_bytes_are_of_a_method_that_sends(compared: Comparison) -> None:
    page = text(comparison_page(compared))
    assert re.search(r"fewest bytes [\d.]+ kB \w+; local sends nothing", page)


def test_a_comparison_is_headed_by_what_its_methods_share(tmp_path: Path) -> None:
    from coterie.config.grid import grid
    from coterie.studies.comparison.running import compare_grid

    settings = [("partition.kind", "dirichlet:0.5"), ("partition.clients", 4)]
    settings += [("model.name", "mclr"), ("train.rounds", 1), ("engine.name", "serial")]
    asked = grid(None, settings, ["fedavg", "local"], 1)
    page = comparison_page(compare_grid(asked, tmp_path / "c"))
    lead = "digits · dirichlet (alpha 0.5) · mclr (650 parameters) · 4 clients · 1 rounds"
    assert f"{lead.replace('1 rounds', '1 round')} · 2 methods · 1 seed · 2 runs" in text(page)
