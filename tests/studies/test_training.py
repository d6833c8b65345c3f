"""One road: every way to train goes through one function, and ends with the page of the run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import coterie as ct
from coterie import report
from coterie.cli.main import call
from coterie.config import loads
from coterie.studies.remote import federation
from coterie.studies.run import training
from coterie.studies.run.experiment import execute
from coterie.studies.run.plan import Plan

SMALL = ["partition.clients=3", "model.name=mclr", "train.rounds=1"]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fitted(**options: Any) -> ct.Result:
    clients = ct.partition("digits", "iid", clients=3)
    return ct.fit(ct.FedAvg(), clients, "mclr", rounds=1, **options)


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """Who came along the road: the folder, and whether the run went on from another."""
    seen: list[tuple[str, bool]] = []
    train = training.train

    def watched(*args: Any, **options: Any) -> ct.Result:
        out = options["out"]
        seen.append((out.name if out else "", options["resume"]))
        return train(*args, **options)

    monkeypatch.setattr(training, "train", watched)
    return seen


def test_fit_run_resume_newcomers_and_compare_take_one_road(
    passed: list[tuple[str, bool]],
) -> None:
    fitted()
    assert call(["run", *SMALL, "--out", "run", "--quiet"]) == 0
    assert call(["resume", "run", "--rounds", "2", "--quiet"]) == 0
    assert call(["newcomers", *SMALL, "--out", "new", "--epochs", "1", "--quiet"]) == 0
    methods = ["--methods", "fedavg,local", "--seeds", "1"]
    assert call(["compare", *SMALL, *methods, "--out", "compared", "--quiet"]) == 0
    assert passed == [
        ("", False),
        ("run", False),
        ("run", True),
        ("new", False),
        ("fedavg-seed0", False),
        ("local-seed0", False),
    ]


def serving_to(grid: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server without a SuperLink."""
    from coterie.engines.flower import serving

    @contextmanager
    def fake(address: object, home: Path) -> Iterator[tuple[Any, Any, Any]]:
        yield grid, lambda: None, lambda: None

    monkeypatch.setattr(serving, "serving", fake)


def test_serve_takes_the_same_road(
    passed: list[tuple[str, bool]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from tests.studies.test_federation import Server

    server = Server(Path.cwd())
    serving_to(server.grid, monkeypatch)
    assert call(["serve", "e.toml", "--insecure", "--out", "my run", "--port", "9999"]) == 0
    said = capsys.readouterr().err
    assert call(["serve", "--resume", "my run", "train.rounds=3", "--insecure", "--quiet"]) == 0
    assert passed == [("my run", False), ("my run", True)]
    assert "report  my run/report.html    open it: coterie open 'my run'" in said
    again = "coterie serve --resume 'my run' train.rounds=4 --insecure --port 9999"
    assert f"next    {again}    train on" in said
    assert call(["serve", "e.toml", "--insecure", "--out", "my run", "--quiet"]) == 5
    assert "continue it with `coterie serve --resume 'my run' ...`" in capsys.readouterr().err


def test_a_stopped_server_says_how_to_serve_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(grid: Any, config: Any, folder: Path, *rest: Any, **options: Any) -> None:
        (folder / "checkpoints" / "000001").mkdir(parents=True)
        (folder / "checkpoints" / "000001" / "manifest.json").write_text("{}")
        raise KeyboardInterrupt

    serving_to(None, monkeypatch)
    monkeypatch.setattr(federation, "run_federation", stop)
    assert call(["serve", *SMALL, "--insecure", "--out", "run", "--quiet"]) == 130
    said = capsys.readouterr().err
    assert "next    coterie serve --resume run --insecure" in said


def test_a_run_that_ended_well_is_no_longer_under_way(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", *SMALL, "--out", "run", "--quiet"]) == 0
    assert call(["run", "--method", "nonsense"]) == 2
    assert "saved" not in capsys.readouterr().err


def test_a_run_from_python_ends_with_its_page_unless_it_is_not_wanted() -> None:
    assert fitted(out="with").page == Path("with/report.html")
    assert fitted(out="without", page=False).page is None
    assert fitted().page is None
    assert Path("with/report.html").exists()
    assert not Path("without/report.html").exists()


def test_a_comparison_has_one_page_and_its_runs_none() -> None:
    methods = ["--methods", "fedavg,local", "--seeds", "1"]
    assert call(["compare", *SMALL, *methods, "--out", "compared", "--quiet"]) == 0
    assert list(Path("compared").rglob("report.html")) == [Path("compared/report.html")]


def test_a_page_that_fails_is_a_warning_and_costs_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*args: Any) -> None:
        raise ZeroDivisionError("in a chart")

    monkeypatch.setattr(report, "write_result", fail)
    assert call(["run", *SMALL, "--out", "run", "--quiet"]) == 0
    assert "warning no report: ZeroDivisionError: in a chart" in capsys.readouterr().err
    events = [json.loads(line) for line in Path("run/events.jsonl").read_text().splitlines()]
    assert [e["event"] for e in events][-2:] == ["done", "warning"]
    assert Path("run/summary.json").exists()


def test_the_plan_of_an_experiment_has_every_field_of_its_file() -> None:
    text = "[train]\nrounds = 7\neverybody = 2\n[evaluate]\nevery = 3\nlast_k = 2\ntarget = 0.9\n"
    config = loads(f"{text}[output]\ncheckpoint_every = 5\nkeep = 4\n")
    plan = Plan.of(config)
    assert plan == Plan(7, 3, 2, 0.9, everybody=2, checkpoint_every=5, keep=4)
    assert [t for t in range(8) if plan.tests_at(t)] == [0, 3, 6, 7]
    assert [t for t in range(8) if plan.saves_at(t)] == [0, 5, 7]


def test_the_first_and_last_rounds_are_tested_and_others_at_times(tmp_path: Path) -> None:
    text = "[partition]\nclients = 4\n[train]\nrounds = 9\n"
    text += "[evaluate]\nevery = 4\nfirst = 2\nlast = 3\n"
    given = [("method", "fedavg"), ("model.name", "mclr")]
    result = execute(loads(text, settings=given), tmp_path / "run", page=False)
    assert [*result.history.series("accuracy_mean", "before")] == [0, 1, 2, 4, 7, 8, 9]


def test_everybody_is_tested_once_more_after_local_epochs(tmp_path: Path) -> None:
    text = "[partition]\nclients = 4\n[train]\nrounds = 2\n[evaluate]\ntuned = 2\n"
    given = [("method", "fedavg"), ("model.name", "mclr")]
    result = execute(loads(text, settings=given), tmp_path / "run", page=False)
    rows = [r for r in result.history if (r.stage, r.metric) == ("tuned", "accuracy")]
    assert {r.round for r in rows} == {2}, "after the last round alone"
    assert len(rows) == 4
    mean = sum(r.value for r in rows) / 4
    assert result.summary["tuned"]["accuracy_mean"] == pytest.approx(mean)
    assert result.summary["tuned"]["epochs"] == 2
    assert mean != result.summary["before"]["accuracy_mean"], "somebody trained"
    assert result.history.stages == ("before",), "it is no stage of the method's own"
