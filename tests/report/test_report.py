"""The report: its charts show the very numbers of the records, and its page is only text."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie import methods
from coterie.cli.main import call
from coterie.cli.report import insight
from coterie.core.errors import CoterieError
from coterie.core.types import Task
from coterie.methods.cflgt import CFLGT
from coterie.methods.fedavg import FedAvg, FedAvgFT
from coterie.methods.fedclust import FedClust
from coterie.methods.local import Local
from coterie.report import read
from coterie.report.blocks import BLOCKS
from coterie.report.charts import CHARTS
from coterie.report.charts.cost import TASKS
from coterie.report.charts.drawing import Drawing
from coterie.report.charts.style import PALETTE, Absent, colour, plain
from coterie.report.facts import asked
from coterie.report.page import embedded, figure_json, look, run_page
from coterie.report.run_data import RunData
from coterie.report.script import TRACES, plotly_js
from coterie.report.verdict import warnings
from coterie.runs.history import from_csv
from tests import reported
from tests.reported import SCRIPT, SOLVER

METHODS = {
    "fedclust": FedClust(SOLVER, warmup_epochs=2),
    "cflgt": CFLGT(solver=SOLVER, pretrain=1),
    "fedavg": FedAvg(SOLVER),
    "local": Local(SOLVER),  # a model for each client
    "fedavg-ft": FedAvgFT(SOLVER),  # two stages
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("runs")
    for name, method in METHODS.items():
        reported.trained(method, where / name)
    return where


@cache
def large() -> RunData:
    return reported.large()


def trace(figure: Any, name: str) -> Any:
    (found,) = (t for t in figure.data if t.name == name)
    return found


def as_plotly_has_it(drawn: Drawing) -> Any:
    """A chart once Plotly's own objects have looked at every key of it."""
    found = drawn.figure().to_plotly_json()
    del found["layout"]["template"]
    return without_scales(json.loads(embedded(found)))


def without_scales(figure: Any) -> Any:
    """Plotly's objects spell out the colour scales that its script knows by name."""
    for t in figure["data"]:
        t.pop("colorscale", None)
    return figure


@pytest.mark.parametrize("name", METHODS)
def test_every_chart_is_drawn_or_says_why_not(name: str, folders: Path) -> None:
    run = look(folders / name)
    assert run.baselines.keys() <= {"local", "fedavg"}
    for key in CHARTS:
        with suppress(Absent):  # any other fault is one
            drawn = CHARTS[key](run)
            assert without_scales(json.loads(figure_json(drawn))) == as_plotly_has_it(drawn)


def test_a_block_for_every_chart() -> None:
    assert {name for block in BLOCKS for name, _ in block.charts} == set(CHARTS)


@pytest.mark.parametrize("name", CHARTS)
def test_a_thousand_clients_make_small_charts(name: str) -> None:
    run = large()
    run = replace(run, baselines={"fedavg": run.final / 2})
    figure = CHARTS[name](run).figure() if name != "norms" else None
    for t in figure.data if figure else ():
        if t.type == "heatmap":
            assert len(t.z) <= 200
            assert len(t.z[0]) <= 200
    assert figure is None or len(figure.to_json()) < 1_500_000


@pytest.mark.parametrize("metric", ["accuracy", "loss"])
def test_lines_are_the_numbers_of_the_records(metric: str, folders: Path) -> None:
    run = read(folders / "fedclust")
    history = from_csv((folders / "fedclust/metrics.csv").read_text())
    figure = CHARTS[metric](run).figure()
    mean = history.series("accuracy_mean" if metric == "accuracy" else "loss")
    line = trace(figure, "mean")
    assert dict(zip(line.x, line.y, strict=True)) == mean
    for cluster in ("0", "1"):
        for t, shown in zip(*(trace(figure, f"cluster {cluster}")[a] for a in "xy"), strict=True):
            own = [
                r.value for r in history if (r.round, r.cluster, r.metric) == (t, cluster, metric)
            ]
            assert shown == pytest.approx(np.mean(own), abs=1e-12)


def test_after_adaptation_is_what_counts(folders: Path) -> None:
    run = read(folders / "fedavg-ft")
    history = from_csv((folders / "fedavg-ft/metrics.csv").read_text())
    figure = CHARTS["accuracy"](run).figure()
    assert list(trace(figure, "mean").y) == list(history.series("accuracy_mean", "after").values())
    before = list(history.series("accuracy_mean", "before").values())
    assert list(trace(figure, "before adaptation").y) == before


def test_references_are_the_runs_beside_it(folders: Path) -> None:
    run = look(folders / "fedclust")
    figure = CHARTS["gains"](run).figure()
    for label, name in (("local only", "local"), ("FedAvg", "fedavg")):
        history = from_csv((folders / name / "metrics.csv").read_text())
        shown = trace(figure, label)
        values = dict(zip(shown.text, shown.x, strict=True))
        assert {k.replace("&lt;", "<").replace("&gt;", ">"): v for k, v in values.items()} == (
            history.clients(3)
        )


def test_a_run_on_other_data_is_no_reference(folders: Path, tmp_path: Path) -> None:
    import coterie
    from tests import tiny

    reported.trained(METHODS["fedclust"], tmp_path / "a")
    others = coterie.Population.of(tiny.clients(8), tiny.CLASSES)
    coterie.fit(FedAvg(SOLVER), others, tiny.network(), rounds=1, out=tmp_path / "b")
    assert look(tmp_path / "a").baselines == {}


def test_the_diagonal_of_the_cross_evaluation_is_the_clusters_own_accuracy() -> None:
    result = reported.trained(METHODS["fedclust"])
    run = result.run_data()
    assert run.insight
    assert run.insight.cross is not None
    own = [run.final[run.assign[-1] == c].mean() for c in run.clusters]
    assert np.diagonal(run.insight.cross) == pytest.approx(own)
    assert result.fed.ledger == [], "looking is not traffic"


def test_bytes_add_up(folders: Path) -> None:
    run = read(folders / "fedclust")
    history = from_csv((folders / "fedclust/metrics.csv").read_text())
    spent = history.total("bytes_up") + history.total("bytes_down")
    assert trace(CHARTS["traffic"](run).figure(), "mean accuracy").x[-1] == spent
    assert sum(CHARTS["uploads"](run).figure().data[0].y) == history.total("bytes_up")


def test_distances_have_names_and_the_tree_they_are_ordered_by(folders: Path) -> None:
    run = read(folders / "fedclust")
    figure = CHARTS["distances"](run).figure()
    heat, tree = (next(t for t in figure.data if t.type == kind) for kind in ("heatmap", "scatter"))
    names = list(figure.layout.yaxis.ticktext)
    assert sorted(names) == sorted(plain(name, 22) for name in run.clients)
    merged = [x for x in tree.x if x]
    assert len(tree.y) == 5 * (run.n - 1), "four corners and a gap for each of n - 1 merges"
    assert max(merged) <= np.nanmax(np.array(heat.z, float)) * 1.001


def test_a_map_of_shares_begins_at_none() -> None:
    heat = next(t for t in CHARTS["labels"](large()).figure().data if t.type == "heatmap")
    assert heat.zmin == 0, "Plotly ignores one bound without the other"
    assert heat.zmax == np.max(heat.z)


def test_the_page_is_small_and_its_script_can_draw_every_chart(folders: Path) -> None:
    kinds = set()
    for make in CHARTS.values():
        for run in (large(), read(folders / "fedclust"), read(folders / "cflgt")):
            with suppress(Absent):
                kinds |= {t["type"] for t in make(run).data}
    assert kinds <= set(TRACES)
    inside = re.findall(r'moduleType:"trace",[^}]{0,200}?name:"(\w+)"', plotly_js())
    assert set(inside) == set(TRACES)
    assert len(run_page(read(folders / "fedclust"))) < 1_600_000


def test_nobody_is_lost_in_the_river() -> None:
    (sankey,) = CHARTS["river"](large()).figure().data
    columns = {}
    for source, value in zip(sankey.link.source, sankey.link.value, strict=True):
        x = sankey.node.x[source]
        columns[x] = columns.get(x, 0) + value
    assert len(columns) <= 12
    assert set(columns.values()) == {1000}


def test_a_cluster_has_one_colour_in_every_chart() -> None:
    run = reported.large(120)
    for c in (0, 3, 11):
        assert trace(CHARTS["accuracy"](run).figure(), f"cluster {c}").line.color == colour(c)
        assert trace(CHARTS["sizes"](run).figure(), f"cluster {c}").marker.color == colour(c)
        assert trace(CHARTS["clients"](run).figure(), f"cluster {c}").marker.color == colour(c)
        assert colour(c) in CHARTS["river"](run).figure().data[0].node.color
    assert len({colour(i) for i in range(100)}) == 100
    assert colour(0) == PALETTE[0]


def test_distances_are_averaged_not_left_out() -> None:
    D = large().memory["distance"]
    Z = np.array(CHARTS["distances"](large()).figure().data[0].z)
    assert Z.shape == (200, 200)
    assert Z.mean() == pytest.approx(D.mean())  # equal blocks: 1000 / 200


def test_an_unfinished_run_is_read_up_to_its_last_whole_line(folders: Path, tmp_path: Path) -> None:
    whole = read(folders / "fedclust")
    for name in ("run.toml", "events.jsonl", "metrics.csv", "clusters.csv"):
        data = (folders / "fedclust" / name).read_bytes()
        (tmp_path / name).write_bytes(data if name == "run.toml" else data[: len(data) * 2 // 3])
    run = read(tmp_path)
    assert 0 < len(run.rounds) < len(whole.rounds)
    assert np.array_equal(run.assign, whole.assign[: len(run.rounds)])
    assert not run.done
    assert any("has not finished" in text for text in warnings(run))
    assert "not finished" in run_page(run)


def test_a_run_that_has_not_begun_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('method = "fedavg"\n')
    assert "has not been tested yet" in run_page(read(tmp_path))


def test_nothing_is_silent() -> None:
    run = large()
    assign = run.assign.copy()
    assign[-1] = np.where(assign[-1] == 5, 4, assign[-1])
    assign[-1, 7] = -1
    text = "\n".join(warnings(replace(run, assign=assign, models=13)))
    assert "2 replies rejected, from 2 clients: client 4, client 5" in text
    assert "Without a model at the end: client client 7" in text
    assert "2 of 13 clusters are dormant" in text


class Reader(HTMLParser):
    """The elements of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@pytest.mark.row(30, counts="hostile requests and names")
def test_a_name_is_never_markup_and_nothing_is_fetched(folders: Path) -> None:
    page = run_page(look(folders / "fedclust"))
    assert SCRIPT not in page
    assert "&lt;script&gt;alert(1)" in page
    reader = Reader()
    reader.feed(page)
    figures = sum(tag == "figure" for tag, _ in reader.tags)
    assert sum(tag == "script" for tag, _ in reader.tags) == figures + 3
    assert not [a for _, a in reader.tags if a.get("src") or str(a.get("href", "#"))[0] != "#"]
    policy = next(a["content"] for _, a in reader.tags if "http-equiv" in a)
    assert policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe-eval" not in policy


@pytest.mark.parametrize("name", CHARTS)
@pytest.mark.row(30, counts="hostile requests and names")
def test_labels_of_charts_are_escaped_too(name: str) -> None:
    """A chart's labels understand some HTML."""
    run = replace(
        large(), events=({"event": "rejected", "round": 1, "client": SCRIPT, "why": SCRIPT},)
    )
    with suppress(Absent):
        assert "<script" not in CHARTS[name](run).figure().to_json().replace("\\u003c", "<")


@pytest.mark.row(30, counts="hostile requests and names")
def test_json_cannot_end_its_script() -> None:
    assert "<" not in embedded({"a": "</script><!--"})
    assert embedded([float("nan"), 0.1234567891, np.float64(2)]) == "[null,0.123457,2]"


def test_a_run_from_python_says_what_its_folder_lacks(folders: Path) -> None:
    run = look(folders / "fedclust", insight)
    assert run.insight is None
    assert "data of this run are not at hand" in run_page(run)


def test_a_result_reports_everything(tmp_path: Path) -> None:
    result = reported.trained(METHODS["fedclust"])
    page = result.report(tmp_path / "new" / "r.html").read_text()
    assert 'data-chart="labels"' in page
    assert 'data-chart="cross"' in page
    line = trace(result.plot("accuracy"), "mean")
    assert line.y[-1] == result.accuracy.mean()
    assert result.plot("labels").data[0].type == "heatmap"
    assert "2 clusters" in result._repr_html_()
    assert SCRIPT not in result._repr_html_()


@pytest.mark.parametrize(("name", "said"), [("acuracy", "exists: accuracy"), ("norms", "report")])
def test_a_chart_that_is_not_there_is_said(name: str, said: str) -> None:
    with pytest.raises(CoterieError, match=said) as error:
        reported.trained(METHODS["fedavg"], rounds=1).plot(name)
    assert error.value.code == "C019"


@pytest.mark.parametrize("format", ["csv", "md", "latex"])
def test_runs_as_a_table(format: str, folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [str(folders / "fedavg"), str(folders / "local")]
    assert call(["report", *names, "--format", format]) == 0
    out = capsys.readouterr().out
    mean = from_csv((folders / "local/metrics.csv").read_text()).series("accuracy_mean")[3]
    assert f"{mean:.4f}" in out


def test_the_command_writes_the_page_and_open_names_it(
    folders: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    page = folders / "local/report.html"
    assert call(["report", str(folders / "local")]) == 0
    assert capsys.readouterr().out.strip() == str(page)
    assert call(["open", str(folders / "local")]) == 0
    assert capsys.readouterr().out.strip() == str(page)
    assert call(["open", str(page)]) == 0, "a page is opened by its own name, too"
    assert opened == [page.as_uri()] * 2


def test_a_round_that_was_done_twice_is_shown_once(folders: Path) -> None:
    run = read(folders / "fedclust")
    done = run.round_events[2]
    again = replace(run, events=(*run.events, {**done, "seconds": 100.0, "asked": {}}))
    shown = CHARTS["time"](again).figure().data
    assert list(shown[0].x) == [0, 1, 2, 3]
    assert sum(t.y[2] for t in shown) == pytest.approx(100)
    (rows,) = (t.rows for t in (asked(again),) if t)
    before = asked(run)
    assert before
    assert rows[0][1].value == (before.rows[0][1].value or 0) - 1, "the first time is void"


def test_tasks_are_told_in_words_in_old_folders_and_new(folders: Path) -> None:
    run = read(folders / "fedavg")
    cost = {"clients": 1, "down": 1, "up": 1, "seconds": 0.1}
    done = {"event": "round", "rounds": 2, "seconds": 1.0}
    told = [{**done, "round": t, "asked": {n: cost}} for t, n in enumerate(("Solver", "Train"))]
    run = replace(run, events=tuple(told))
    table = asked(run)
    assert table
    assert [[cell.text for cell in row[:2]] for row in table.rows] == [["training", "2"]]
    assert CHARTS["time"](run).figure().data[0].name == "clients: training"


def test_every_task_of_a_method_has_words() -> None:
    modules = {entry.path.split(":")[0] for entry in methods.METHODS.values()}
    for name in modules:
        import_module(f"coterie.methods.{name}")
    kinds = [Task]
    for kind in kinds:
        kinds += kind.__subclasses__()
    rooms = ("coterie.tasks.", "coterie.methods.")
    names = {k.__name__ for k in kinds if k.__module__.startswith(rooms)}
    abstract = {"SteppedTask", "Showing", "Around", "Training", "Held"}
    assert names - abstract <= set(TASKS)


def test_what_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["report", str(tmp_path)]) == 5
    assert "K006" in capsys.readouterr().err
