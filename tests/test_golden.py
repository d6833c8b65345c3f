"""The golden cases, one test per function."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import golden

CASES = golden.load()


@pytest.mark.parametrize("fn", sorted(golden.WORDS))
def test_golden_cases_of(fn: str) -> None:
    cases = [case for case in CASES if case["fn"] == fn]
    assert cases, "a mapped name without a case"
    assert [f"{case['id']}: {why}" for case in cases if (why := golden.failure(case))] == []


def test_no_function_is_left_out() -> None:
    assert {case["fn"] for case in CASES} == golden.WORDS.keys()


def file_with(tmp_path: Path, *cases: dict[str, object]) -> str:
    path = tmp_path / "golden.json"
    path.write_text(json.dumps({"cases": list(cases)}))
    return str(path)


CASE = {
    "id": "bottom_k-0",
    "fn": "bottom_k",
    "args": {"accs": [0.5, 1.0], "k": 1},
    "expected": 0.5,
    "rtol": 1e-9,
    "atol": 1e-10,
}


def test_the_last_line_counts_passed_failed_and_unmapped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = CASE | {"id": "wrong", "expected": 0.6}
    unknown = CASE | {"id": "unknown", "fn": "no_such_word"}
    assert golden.main([file_with(tmp_path, CASE, wrong, unknown)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("FAILED wrong: ")
    assert lines[1:] == ["unmapped no_such_word", "1 passed, 1 failed, 1 unmapped"]


def test_unmapped_names_alone_do_not_fail(tmp_path: Path) -> None:
    assert golden.main([file_with(tmp_path, CASE, CASE | {"fn": "no_such_word"})]) == 0


def test_a_case_that_raises_fails_in_one_line(tmp_path: Path) -> None:
    broken = CASE | {"args": {"accs": [0.5], "k": 0}}
    assert golden.failure(broken).startswith("ValueError: ")


@pytest.mark.parametrize(
    ("got", "expected"),
    [(float("nan"), 1.0), (None, 1.0), (0.0, None), (True, 1), ([1.0], [1.0, 2.0]), ({}, {"a": 1})],
)
def test_differences_are_seen(got: object, expected: object) -> None:
    assert golden.difference(got, expected, 1e-9, 1e-10)
