"""The table of costs: what is counted, and that the page is current."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from coterie.core.types import Asked
from coterie.methods import METHODS, find
from coterie.studies.insight.costs import (
    ROUNDS,
    amount,
    costs_of,
    markdown,
    per_round,
    quick,
    table_row,
)

PAGE = Path(__file__).parents[2] / "docs" / "costs.md"
RATIOS = {
    "local": (0, 0),
    "fedavg": (1, 1),
    "ifca": (4, 1),
    "dapfl": (1, 1),
    "scaffold": (2, 2),
    "cfl": (1, 1),
    "pacfl": (1, 1),
    "fedsoft": (1, 1),
}


@pytest.fixture(scope="module")
def costs() -> dict[str, object]:
    return {cost.name: cost for cost in costs_of([name for name in RATIOS if name in METHODS])}


@pytest.mark.parametrize("name", [name for name in RATIOS if name in METHODS])
def test_a_usual_round_costs_what_theory_says(costs: dict[str, object], name: str) -> None:
    assert costs[name].ratio == pytest.approx(RATIOS[name], abs=1e-3)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [name for name in RATIOS if name in METHODS])
def test_the_page_has_what_is_counted(costs: dict[str, object], name: str) -> None:
    assert table_row(costs[name]) in PAGE.read_text().splitlines()  # type: ignore[arg-type]


def test_the_page_has_every_method_once() -> None:
    names = re.findall(r"^\| ([a-z][^ ]*) \| [0-9]", PAGE.read_text(), re.MULTILINE)
    assert sorted(names) == sorted(METHODS)


def test_what_is_sent_once_is_beside_the_usual_round(costs: dict[str, object]) -> None:
    dapfl, pacfl, fedsoft = costs["dapfl"], costs["pacfl"], costs["fedsoft"]
    assert (dapfl.besides_down, dapfl.besides_up) == (0, 10 * 4)  # type: ignore[attr-defined]
    assert (pacfl.besides_down, pacfl.besides_up) == (0, 3 * 64 * 4)  # type: ignore[attr-defined]
    every_second_round = ROUNDS // 2
    assert fedsoft.besides_down == every_second_round * 3 * fedsoft.model  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_whole_page_is_current() -> None:
    assert markdown(costs_of()) == PAGE.read_text()


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_can_be_made_quick(name: str) -> None:
    made = quick(name)
    assert type(made) is find(name)
    assert getattr(made, "fraction", 1.0) == 1.0


def test_bytes_before_the_first_round_come_first() -> None:
    def asked(at: int) -> Asked:
        who = torch.arange(2)
        return Asked(at, "train", "Solver", who, torch.tensor([3, 4]), torch.tensor([1, 0]))

    ledger = [asked(-1), asked(0), asked(0)]
    assert per_round(ledger, "down", 2).tolist() == [7, 14, 0]
    assert per_round(ledger, "up", 2).tolist() == [1, 2, 0]


def test_amounts_round_to_models() -> None:
    assert [amount(x, 1000) for x in (0, 9, 10, 1000, 2008, 2500)] == [
        "0",
        "9 B",
        "0.01 d",
        "1 d",
        "2 d + 8 B",
        "2.50 d",
    ]
