"""The scorecard says what its tests showed: nothing counts as passed that did not pass."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.scorecard.page import enough, headlines, page, passed, status
from tests.scorecard.plugin import FIGURE, Scorecard, named, pytest_runtest_setup
from tests.scorecard.rows import ROWS


def proof(*rows: int, ended: str = "passed", **figures: float) -> dict[str, Any]:
    told = [{"name": k.replace("_", " "), "value": v, "by": "sum"} for k, v in figures.items()]
    name = f"tests/x.py::{ended}{rows}"
    return {"test": name, "rows": list(rows), "ended": ended, "seconds": 1.0, "figures": told}


@pytest.mark.parametrize(
    ("ends", "word"),
    [
        ([], "absent"),
        (["passed", "passed"], "passed"),
        (["passed", "skipped"], "skipped"),
        (["passed", "failed"], "failed"),
        (["skipped", "failed"], "failed"),
        (["passed", "not run"], "not run"),
        (["failed", "not run"], "failed"),
    ],
)
def test_a_row_is_passed_only_if_all_its_tests_are(ends: list[str], word: str) -> None:
    tests = [proof(3, ended=end) for end in ends]
    assert word in status(tests)
    assert passed(tests) == (word == "passed")


def test_a_test_may_prove_several_rows() -> None:
    assert passed([proof(3, 4), proof(4, ended="failed")]) == 1


def test_all_rows_are_on_the_page_with_their_figures() -> None:
    text = page(
        [proof(2, storage_crash_points=500), proof(2, storage_crash_points=20)], 60, "a box"
    )
    assert [f"| {row.number} | " in text for row in ROWS] == [True] * 36
    assert "storage crash points: 520" in text
    assert text.count("absent") == 35 + 1  # and the word in the introduction


def test_the_headlines_add_up_every_test_once() -> None:
    tests = [
        proof(1, 2, process_kills=12, identical_resumes=12),
        proof(2, storage_crash_points=500),
    ]
    assert (
        "512 crash points (500 storage operations, 12 process kills), 12 identical"
        in (headlines(tests)[1])
    )


@pytest.mark.parametrize(
    ("crashes", "kills", "resumes", "well"),
    [(500, 48, 548, True), (500, 48, 547, False), (500, 47, 547, False), (499, 49, 548, False)],
)
def test_every_crash_must_have_an_identical_resume(
    crashes: int, kills: int, resumes: int, well: bool
) -> None:
    told = proof(2, storage_crash_points=crashes, process_kills=kills, identical_resumes=resumes)
    assert enough([told]) is well


def test_what_a_method_leaks_is_told_first() -> None:
    leak = {"name": "audit `fedavg`", "value": "weights 40 dB", "by": "last"}
    lines = headlines([proof(34) | {"figures": [leak]}])
    assert "   - `fedavg`: weights 40 dB" in lines


def test_a_case_of_many_counts_as_one(request: Any) -> None:
    request.node.add_marker(pytest.mark.row(23, counts="damaged data"))
    pytest_runtest_setup(request.node)
    (told,) = [json.loads(v) for key, v in request.node.user_properties if key == FIGURE]
    assert told == {"name": "damaged data", "value": 1, "by": "sum"}


def test_figures_are_added_or_the_most_is_taken() -> None:
    told = [{"name": "n", "value": v, "by": "sum"} for v in (1, 2)]
    told += [{"name": "m", "value": v, "by": "most"} for v in (3, 9, 4)]
    told += [{"name": "l", "value": v, "by": "least"} for v in (3, 1)]
    assert named(told) == {"n": 3, "m": 9, "l": 1}


def report(when: str, outcome: str, name: str = "tests/x.py::a", **more: Any) -> Any:
    return SimpleNamespace(
        nodeid=name, when=when, outcome=outcome, duration=0.5, user_properties=[], **more
    )


def written(card: Scorecard) -> Any:
    card.pytest_sessionfinish(SimpleNamespace(config=SimpleNamespace()))  # type: ignore[arg-type]
    return json.loads(card.file.read_text())


@pytest.mark.parametrize(
    ("phases", "ended"),
    [
        ([("setup", "passed"), ("call", "passed"), ("teardown", "passed")], "passed"),
        ([("setup", "passed"), ("call", "passed"), ("teardown", "failed")], "failed"),
        ([("setup", "failed"), ("teardown", "passed")], "failed"),
        ([("setup", "skipped"), ("teardown", "passed")], "skipped"),
        ([("setup", "passed"), ("call", "failed"), ("teardown", "passed")], "failed"),
        ([("setup", "passed")], "not run"),
        ([], "not run"),
        ([("???", "failed")], "failed"),  # as of a process that died over it
    ],
)
def test_a_test_ends_as_its_worst_phase(
    phases: list[tuple[str, str]], ended: str, tmp_path: Path
) -> None:
    card = Scorecard(tmp_path / "s.json")
    card.rows = {"tests/x.py::a": [7]}
    for phase in phases:
        card.pytest_runtest_logreport(report(*phase))
    (found,) = written(card)["tests"]
    assert found["ended"] == ended
    assert found["rows"] == [7]


def test_an_expected_failure_proves_nothing(tmp_path: Path) -> None:
    card = Scorecard(tmp_path / "s.json")
    card.rows = {"tests/x.py::a": [7]}
    card.pytest_runtest_logreport(report("call", "skipped", wasxfail="known"))
    assert written(card)["tests"][0]["ended"] == "failed"


def test_a_worker_process_tells_its_tests_and_groups_are_no_part_of_their_names(
    tmp_path: Path,
) -> None:
    card = Scorecard(tmp_path / "s.json")
    node = SimpleNamespace(workeroutput={"rows": {"tests/x.py::a@five": [28, 29]}})
    card.pytest_testnodedown(node, None)
    told = report("call", "passed", "tests/x.py::a@five")
    told.user_properties.append((FIGURE, json.dumps({"name": "n", "value": 1, "by": "sum"})))
    card.pytest_runtest_logreport(told)
    found = written(card)
    assert found["strange"] == []
    (only,) = found["tests"]
    assert (only["test"], only["ended"], len(only["figures"])) == ("tests/x.py::a", "passed", 1)


def test_the_figure_of_a_test_reaches_its_report(figure: Any, request: Any) -> None:
    figure("n", 2)
    (told,) = [json.loads(v) for key, v in request.node.user_properties if key == FIGURE]
    assert told == {"name": "n", "value": 2, "by": "sum"}
