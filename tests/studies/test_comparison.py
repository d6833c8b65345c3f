"""Comparisons: equal terms, the same result after any stop, and a table that can be traced."""

from __future__ import annotations

import csv
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import coterie
from coterie import config as configs
from coterie.config.grid import Grid, grid, listed, split
from coterie.core.errors import CheckpointError, ConfigError
from coterie.data.population import partition
from coterie.runs.comparison import Cell, Comparison
from coterie.runs.history import from_csv
from coterie.studies.comparison.running import compare, compare_grid
from coterie.tasks.solver import Solver

SETTINGS: list[tuple[str, Any]] = [
    ("partition.kind", "rotation"),
    ("partition.clients", 6),
    ("model.name", "mclr"),
    ("train.rounds", 3),
    ("train.participation", 0.5),
    ("evaluate.target", 0.5),
]
METHODS = ("fedavg", "fedprox", "ifca:clusters=2", "fedavg:train.lr=0.2")


def asked(methods: tuple[str, ...] = METHODS, seeds: int = 2, **more: Any) -> Grid:
    given = [*SETTINGS, *((k.replace("__", "."), v) for k, v in more.items())]
    return grid(None, given, methods, seeds)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return compare_grid(asked(), tmp_path_factory.mktemp("whole") / "c")


def cohorts(cell: Cell) -> list[tuple[int, str]]:
    rows = [r for r in cell.history if r.client and r.stage == "traffic"]
    return [(r.round, r.client) for r in rows if r.metric == "bytes_up" and r.round > 0]


@pytest.mark.parametrize("seed", [0, 1])
def test_methods_share_clients_initial_weights_and_draws(whole: Comparison, seed: int) -> None:
    first, *others = (whole[m, seed] for m in ("fedavg", "fedprox", "fedavg:train.lr=0.2"))
    row = coterie.open_run(first.folder).fed.layout.initial
    for other in others:
        assert other.facts["population"] == first.facts["population"]
        assert torch.equal(coterie.open_run(other.folder).fed.layout.initial, row)
        assert cohorts(other) == cohorts(first)
    assert whole["ifca:clusters=2", seed].facts["initial"] == first.facts["initial"]
    assert len(cohorts(first)) == 9, "half of six clients, three rounds"


def test_seeds_differ_in_all_of_them(whole: Comparison) -> None:
    a, b = whole["fedavg", 0], whole["fedavg", 1]
    assert a.facts["population"] != b.facts["population"]
    assert a.facts["initial"] != b.facts["initial"]
    assert cohorts(a) != cohorts(b)


def test_a_cell_is_the_run_that_its_experiment_makes(whole: Comparison, tmp_path: Path) -> None:
    from coterie.studies.run import experiment

    experiment.execute(asked().config("fedprox", 1), tmp_path / "alone")
    for name in ("metrics.csv", "clusters.csv", "run.toml"):
        there = whole["fedprox", 1].folder / name
        assert (tmp_path / "alone" / name).read_bytes() == there.read_bytes()


def test_the_table_follows_from_the_records(whole: Comparison) -> None:
    row = whole.table()[0]
    cells = whole.of("fedavg")
    finals, worst = [], []
    for cell in cells:
        history = from_csv((cell.folder / "metrics.csv").read_text())
        last = list(history.clients(3).values())
        finals.append(np.mean(last))
        worst.append(min(last))
        series = history.series("accuracy_mean")
        assert cell.numbers["accuracy_top_5"] == pytest.approx(
            np.mean([series[t] for t in (1, 2, 3)])
        )
    assert row["accuracy_last"] == pytest.approx(np.mean(finals))
    assert row["std_seeds"] == pytest.approx(np.std(finals, ddof=1))
    assert row["worst"] == pytest.approx(np.mean(worst))
    assert row["bytes"] == row["bytes_up"] + row["bytes_down"]
    assert row["samples"] > 0


def test_local_work_is_told_and_its_differences_are(whole: Comparison) -> None:
    work = {row["method"]: row["lr"] for row in whole.table()}
    assert work == {
        "fedavg": 0.05,
        "fedprox": 0.05,
        "ifca:clusters=2": 0.05,
        "fedavg:train.lr=0.2": 0.2,
    }
    assert "Local work differs: fedavg, fedprox, ifca:clusters=2: 2 epochs of 32" in whole.to(
        "text"
    )


def test_samples_are_those_of_whoever_took_part(whole: Comparison) -> None:
    cell = whole["fedavg", 0]
    clients = coterie.open_run(cell.folder).population
    sizes = dict(zip(clients.names, clients.sizes.tolist(), strict=True))
    assert cell.facts["work"]["samples"] == sum(2 * sizes[c] for _, c in cohorts(cell))


def test_it_is_read_back_from_disk_alone(whole: Comparison) -> None:
    again = Comparison.load(whole.folder)
    assert again == whole
    assert again.table() == whole.table()
    assert [p.sentence for p in again.tests().pairs] == [p.sentence for p in whole.tests().pairs]


def test_another_comparison_is_refused_key_by_key(whole: Comparison) -> None:
    with pytest.raises(CheckpointError) as error:
        compare_grid(asked(train__rounds=4, train__batch_size=8), whole.folder)
    assert error.value.code == "K012"
    assert error.value.where == "train.rounds: was 3, is 4\ntrain.batch_size: was 32, is 8"
    with pytest.raises(CheckpointError, match="another comparison") as error:
        compare_grid(asked(METHODS[:2]), whole.folder)
    assert error.value.where.startswith("methods: was ['fedavg', 'fedprox', 'ifca:clusters=2'")
    with pytest.raises(CheckpointError) as error:
        compare_grid(asked(seeds=3), whole.folder)
    assert error.value.where == "seeds: was [0, 1], is [0, 1, 2]"


class Stop(BaseException):
    """As Ctrl-C."""


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return compare_grid(pair(), tmp_path_factory.mktemp("few") / "c")


def pair() -> Grid:
    return asked(("fedavg", "fedprox"), seeds=1, train__rounds=2)


@pytest.mark.parametrize("after", [0, 1, 3, 5])
def test_stopped_anywhere_it_goes_on_to_the_same_bytes(
    few: Comparison, tmp_path: Path, after: int
) -> None:
    heard = 0

    def stop(event: dict[str, Any]) -> None:
        nonlocal heard
        heard += event["event"] == "round"
        if heard > after:
            raise Stop

    with pytest.raises(Stop):
        compare_grid(pair(), tmp_path / "c", on_event=stop)
    again = compare_grid(pair(), tmp_path / "c")
    assert not again.missing
    assert (tmp_path / "c/table.csv").read_bytes() == (few.folder / "table.csv").read_bytes()
    for cell in few.cells:
        mine = tmp_path / "c" / cell.folder.name / "metrics.csv"
        assert mine.read_bytes() == (cell.folder / "metrics.csv").read_bytes()


def test_what_is_done_is_not_run_again(whole: Comparison) -> None:
    events: list[str] = []
    compare_grid(asked(), whole.folder, on_event=lambda event: events.append(event["event"]))
    assert events == ["comparison"] + ["already"] * 8


def test_a_cell_that_fails_is_named_and_does_not_lose_the_others(tmp_path: Path) -> None:
    methods = ("fedavg", "fedavg:train.lr=3e38", "fedprox")
    found = compare_grid(asked(methods, seeds=1), tmp_path / "c")
    assert list(found.failed) == ["fedavg_train.lr=3e38-seed0"]
    assert "R014" in found.failed["fedavg_train.lr=3e38-seed0"]
    assert [row["method"] for row in found.table()] == ["fedavg", "fedprox"]
    assert "Not done: fedavg:train.lr=3e38, seed 0: error[R014]" in found.to("text")


def test_runs_that_do_not_share_their_clients_are_refused(tmp_path: Path) -> None:
    found = compare_grid(asked(("fedavg", "fedprox"), seeds=1), tmp_path / "c")
    file = found.cells[0].folder / "cell.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "population": "other"}))
    with pytest.raises(CheckpointError) as error:
        compare_grid(asked(("fedavg", "fedprox"), seeds=1), tmp_path / "c")
    assert error.value.code == "K013"


@pytest.mark.row(13, counts="second processes")
def test_a_second_comparison_waits_outside(whole: Comparison) -> None:
    def intrude(event: dict[str, Any]) -> None:
        compare_grid(asked(), whole.folder)

    with pytest.raises(CheckpointError) as error:
        compare_grid(asked(), whole.folder, on_event=intrude)
    assert error.value.code == "K007"


def test_a_server_that_holds_samples_does_so_for_every_method() -> None:
    found = grid(None, SETTINGS, ["fedavg", "fedds"], 1)
    assert [c.data.public for c in found.experiments.values()] == [1, 1]


FILE = """
method = ["fedavg", "ifca", "ifca:clusters=3"]
[model]
name = "mclr"
[ifca]
clusters = 2
"""


def test_a_list_in_a_file_is_a_comparison(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text(FILE)
    found = grid(file, seeds=[4, 7])
    assert {m: c.hyper.get("clusters") for m, c in found.experiments.items()} == {
        "fedavg": None,
        "ifca": 2,
        "ifca:clusters=3": 3,
    }
    assert found.seeds == (4, 7)
    with pytest.raises(ConfigError, match="lists 3 methods") as error:
        configs.load(file)
    assert error.value.code == "C018"
    assert configs.load(file, [("method", "fedavg")]).method == "fedavg"


@pytest.mark.parametrize(
    ("methods", "what"),
    [
        (["fedavg"], "only fedavg"),
        ([], "no methods"),
        (["fedavg", "fedavg"], "named twice"),
        (["fedavg", "fedavg:seed.x=3"], "for one method alone"),
        (["fedavg", "ifca:partition.clients=3"], "for one method alone"),
    ],
)
def test_what_cannot_be_compared_is_refused(methods: list[str], what: str) -> None:
    with pytest.raises(ConfigError, match=what) as error:
        grid(None, SETTINGS, methods, 2)
    assert error.value.code == "C017"


def test_the_notation_of_methods() -> None:
    assert listed("fedavg,fedclust:clusters=4:train.lr=0.1,m.x:Y") == [
        "fedavg",
        "fedclust:clusters=4:train.lr=0.1",
        "m.x:Y",
    ]
    assert split("m.x:Y:mu=0.1") == ("m.x:Y", [("Y.mu", 0.1)])


@pytest.mark.parametrize("format", ["text", "md", "latex", "html"])
def test_every_format_tells_the_same(whole: Comparison, format: str) -> None:
    told = whole.to(format)
    mean = f"{100 * whole.table()[0]['accuracy_last']:.1f}"
    assert mean in told
    assert "fedavg:train.lr=0.2" in told
    assert "Wilcoxon" in told or "too few" in told


def test_csv_reads_back_to_the_same_bits(whole: Comparison) -> None:
    rows = list(csv.DictReader(whole.to("csv").splitlines()))
    assert [float(r["accuracy_last"]) for r in rows] == [r["accuracy_last"] for r in whole.table()]
    assert "seconds" not in (whole.folder / "table.csv").read_text().splitlines()[0]


def test_a_label_stays_text_in_html(whole: Comparison) -> None:
    asked = {**whole.asked, "methods": ["<script>"], "experiments": {}}
    cells = tuple(Cell(c.folder, "<script>", c.seed) for c in whole.of("fedavg"))
    assert "<script>" not in Comparison(whole.folder, asked, cells).to("html")


def test_python_objects_compare_and_go_on(tmp_path: Path) -> None:
    solver = Solver(lr=0.05, epochs=1)
    methods = [
        coterie.FedAvg(solver),
        coterie.IFCA(solver, clusters=2),
        coterie.IFCA(solver, clusters=3),
    ]
    heard: list[dict[str, Any]] = []

    def clients(seed: int) -> Any:
        return partition("digits", "rotation", clients=4, seed=seed)

    def go(out: Path, **more: Any) -> Comparison:
        return compare(methods, clients, "mclr", rounds=2, seeds=2, out=out, **more)

    found = go(tmp_path / "c", on_event=heard.append)
    assert found.methods == ("fedavg", "ifca:clusters=2", "ifca:clusters=3")
    assert tomllib.loads((tmp_path / "c/compare.toml").read_text())["started_from"] == "python"
    assert found.of("fedavg")[0].facts["population"] != found.of("fedavg")[1].facts["population"]

    def stop(event: dict[str, Any]) -> None:
        if event.get("cell") == "ifca_clusters=2-seed0" and event.get("round") == 1:
            raise Stop

    with pytest.raises(Stop):
        go(tmp_path / "d", on_event=stop)
    assert go(tmp_path / "d").table()[0].keys() == found.table()[0].keys()
    assert (tmp_path / "c/table.csv").read_bytes() == (tmp_path / "d/table.csv").read_bytes()
    with pytest.raises(CheckpointError):
        compare(methods, clients, "mclr", rounds=3, seeds=2, out=tmp_path / "c")


def test_one_population_is_the_same_for_every_seed(tmp_path: Path) -> None:
    clients = partition("digits", "iid", clients=3)
    found = compare(
        {"a": coterie.FedAvg(), "b": coterie.FedProx()},
        clients,
        "mclr",
        rounds=1,
        seeds=2,
        out=tmp_path / "c",
    )
    assert len({c.facts["population"] for c in found}) == 1
    assert len({c.facts["initial"] for c in found}) == 2


def test_those_held_out_join_in_every_cell(tmp_path: Path) -> None:
    found = compare_grid(
        asked(("fedavg", "ifca:clusters=2"), seeds=1, newcomers__share=0.3, newcomers__epochs=1),
        tmp_path / "c",
    )
    assert "newcomers in %" in found.to("text")
    assert all(0 <= row["newcomers_adapted"] <= 1 for row in found.table())
    assert found.table()[0]["newcomers_assigned"] is None, "one model for all: no cluster is right"


def test_the_rows_of_a_round_do_not_follow_the_order_of_a_memory() -> None:
    """A checkpoint gives the memory back in its own order; a resume must write the same bytes."""
    from coterie.core.types import State
    from coterie.runs.measure import grouped

    told = {"report_b": torch.tensor(1.0), "report_a": torch.tensor(2.0)}
    state = State.shared(torch.zeros(3), 2)
    one, other = state.hold(**told), state.hold(**dict(reversed(told.items())))
    assert grouped(one, None, None) == grouped(other, None, None)


@pytest.mark.parametrize("page", [True, False])
def test_a_comparison_from_python_ends_with_its_page(page: bool, tmp_path: Path) -> None:
    clients = coterie.partition("digits", clients=2)
    coterie.compare(
        ["fedavg", "local"], clients, "mclr", rounds=1, seeds=1, out=tmp_path / "c", page=page
    )
    assert (tmp_path / "c" / "report.html").exists() == page
