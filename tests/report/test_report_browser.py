"""The page as a reader has it: in a real browser, without a network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coterie.methods.fedavg import FedAvg
from coterie.methods.fedclust import FedClust
from coterie.report.compared import write_comparison
from coterie.report.page import run_page, save
from tests import reported
from tests.browser import Seen, needed, opened
from tests.reported import SCRIPT, SOLVER

pytestmark = [pytest.mark.slow, needed]


def small(where: Path) -> Path:
    return reported.trained(FedClust(SOLVER, warmup_epochs=2)).report(where / "small.html")


def large(where: Path) -> Path:
    return save(run_page(reported.large()), where / "large.html")


def comparison(where: Path) -> Path:
    from coterie.methods.fedavg import FedAvg
    from coterie.methods.local import Local
    from coterie.studies.comparison.running import compare
    from tests import tiny

    methods = {"fedavg": FedAvg(SOLVER), "local": Local(SOLVER), SCRIPT: FedAvg(SOLVER)}
    folder = where / "cmp"
    compare(methods, reported.population(), tiny.network(), rounds=2, seeds=2, out=folder)
    return write_comparison(folder)


def drawn(seen: Seen) -> None:
    """Wait for the charts; each must have ink, and none may have failed."""
    ready = 'html[data-ready="yes"]'  # a function would be an eval, which the page forbids
    seen.page.wait_for_selector(ready, state="attached", timeout=60_000)
    figures = seen.page.locator("figure[data-chart]")
    assert figures.count() > 3
    for i in range(figures.count()):
        marks = figures.nth(i).locator(
            "path.point, path.js-line, .scatterlayer .points path, .sankey-node, .bars path,"
            ".heatmaplayer image, .boxlayer path"
        )
        assert marks.count() > 0, figures.nth(i).get_attribute("data-chart")
        assert figures.nth(i).locator("svg.main-svg").first.bounding_box()["width"] > 200
    assert seen.errors == []
    assert seen.dialogs == []
    assert {url.split(":")[0] for url in seen.requests} <= {"file", "data", "blob"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("make", [small, large, comparison])
def test_every_chart_is_drawn_and_nothing_leaves(
    make: Callable[[Path], Path], scheme: Any, tmp_path: Path
) -> None:
    with opened(make(tmp_path), scheme) as seen:
        drawn(seen)
        page = seen.page
        assert SCRIPT in page.locator("body").inner_text(), "the name is shown as it is"
        ink = page.evaluate("getComputedStyle(document.body).color")
        light = sum(map(int, ink.removeprefix("rgb(").removesuffix(")").split(","))) > 3 * 128
        assert light == (scheme == "dark")
        page.click("#theme")
        page.wait_for_timeout(300)
        assert page.evaluate("getComputedStyle(document.body).color") != ink
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert seen.errors == []


def test_what_is_in_view_is_drawn_before_the_page_counts_as_loaded(tmp_path: Path) -> None:
    with opened(small(tmp_path)) as seen:  # returns with the load event, as a screenshot does
        first = seen.page.locator("figure[data-chart]").first
        assert first.locator(".plot[data-drawn] svg.main-svg").count() > 0


# Texts of one chart that lie on each other, or that its frame cuts off.
COLLIDING = """
figures => figures.flatMap((figure) => {
  const plot = figure.querySelector(".plot");
  const frame = plot.getBoundingClientRect();
  const texts = [...plot.querySelectorAll("svg text")].filter((t) => t.textContent.trim()
    && (/rotate\\(([-\\d.]+)/.exec(t.getAttribute("transform"))?.[1] ?? 0) % 90 === 0
    && getComputedStyle(t).opacity !== "0" && t.getBoundingClientRect().width);
  const boxes = texts.map((t) => [t.textContent, t.getBoundingClientRect()]);
  const cut = boxes.filter(([, b]) => b.left < frame.left - 2 || b.right > frame.right + 2);
  const on = boxes.flatMap(([a, p], i) => boxes.slice(i + 1).filter(([, q]) =>
    Math.min(p.right, q.right) - Math.max(p.left, q.left) > 3
    && Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > 4).map(([b]) => `${a} | ${b}`));
  return [...cut.map(([a]) => `${figure.dataset.chart}: ${a} is cut`),
          ...on.map((pair) => `${figure.dataset.chart}: ${pair}`)];
})
"""
# Words of tables that are broken in the middle.
BROKEN = """
cells => cells.filter((cell) => /^[\\w ]+$/.test(cell.textContent.trim())).filter((cell) => {
  const range = document.createRange();
  range.selectNodeContents(cell);
  const lines = new Set([...range.getClientRects()].map((r) => Math.round(r.top)));
  return lines.size > cell.textContent.trim().split(/\\s+/).length;
}).map((cell) => cell.textContent)
"""


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("make", [small, comparison])
def test_no_text_lies_on_another_or_is_cut_off(
    make: Callable[[Path], Path], width: int, tmp_path: Path
) -> None:
    with opened(make(tmp_path), width=width) as seen:
        drawn(seen)
        seen.page.wait_for_timeout(300)
        assert seen.page.locator("figure[data-chart]").evaluate_all(COLLIDING) == []
        assert seen.page.locator("td").evaluate_all(BROKEN) == []
        assert seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_chart_gives_its_numbers_and_its_picture(tmp_path: Path) -> None:
    reported.trained(FedAvg(SOLVER), tmp_path / "fedavg")  # what the other is compared with
    result = reported.trained(FedClust(SOLVER, warmup_epochs=2), tmp_path / "fedclust")
    with opened(result.report(tmp_path / "r.html")) as seen:
        drawn(seen)
        figure = seen.page.locator("#chart-gains")
        with seen.page.expect_download() as download:
            figure.locator("[data-save=csv]").click()
        lines = Path(download.value.path()).read_text().splitlines()
        assert lines[0] == "series,x,y,label,more"
        own = [line for line in lines if SCRIPT in line and line.startswith("fedclust")]
        assert len(own) == 1
        assert float(own[0].split(",")[1]) == pytest.approx(result.accuracy[SCRIPT], abs=1e-5)
        with seen.page.expect_download() as download:
            figure.locator("[data-save=svg]").click()
        assert Path(download.value.path()).read_text().startswith("<svg")
        assert seen.errors == []


def test_tables_sort_on_a_click(tmp_path: Path) -> None:
    result = reported.trained(FedClust(SOLVER, warmup_epochs=2))
    with opened(result.report(tmp_path / "r.html")) as seen:
        table = seen.page.locator("#people table")
        head = table.locator("th", has_text="accuracy")
        column = seen.page.evaluate("h => h.cellIndex", head.element_handle())
        for order in (False, True):
            head.locator("button").click()
            cells = table.locator(f"tbody tr td:nth-child({column + 1})")
            values = [float(v) for v in cells.evaluate_all("c => c.map(x => x.dataset.v)")]
            assert values == sorted(values, reverse=order)
            assert len(values) == 8


def test_figures_are_written_as_files(tmp_path: Path) -> None:
    pytest.importorskip("kaleido")
    from coterie.report.figures import figures, write_figures

    reported.trained(FedClust(SOLVER, warmup_epochs=2), tmp_path / "run", rounds=1)
    names = [name for name, _ in figures(tmp_path / "run")]
    files = write_figures(tmp_path / "run", tmp_path / "out", ["svg", "pdf"])
    assert {f.name for f in files} == {f"{n}.{kind}" for n in names for kind in ("svg", "pdf")}
    for file in files:
        begin = file.read_bytes()[:5]
        assert begin == (b"%PDF-" if file.suffix == ".pdf" else b"<svg "), file.name
