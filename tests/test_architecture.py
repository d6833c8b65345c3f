"""docs/architecture.md tells the truth: its rooms are those of the code, its files are there."""

from __future__ import annotations

import re

import pytest

from tests.test_imports import ROOMS, SRC
from tests.test_readme import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()
TABLE = PAGE.split("## Where do I change X")[1]
WANTED = ["method", "task", "partition", "network", "optimiser", "chart", "engine", "reader"]
FILES = sorted(set(re.findall(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|md|js)|(?:[\w.-]+/)+)`", TABLE)))


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_named_is_there(name: str) -> None:
    home = ROOT if name.split("/")[0] in ("docs", "tests", "tools", "src", "examples") else SRC
    assert (home / name).exists()


@pytest.mark.parametrize("what", WANTED)
def test_the_page_says_where_to_change_what_people_change(what: str) -> None:
    rows = [line for line in TABLE.splitlines() if line.startswith("| a")]
    (row,) = [line for line in rows if re.match(rf"\| an? ((kind|reader) of )?{what}\b", line)]
    assert re.search(r"`[\w./]+`", row.split("|")[2]), "no file is named"


@pytest.mark.parametrize("name", ["METHODS", "MODELS", "CHARTS", "ENGINES", "KINDS", "READERS"])
def test_a_table_that_is_named_is_in_the_file_beside_it(name: str) -> None:
    (file,) = re.findall(rf"`{name}`[^|`]*(?:`build` )?in `([\w/.]+)`", TABLE)
    assert re.search(rf"^{name}\b", (SRC / file).read_text(), re.MULTILINE)


def test_every_room_is_on_the_map() -> None:
    assert [room for room in ROOMS if f"| `{room}/` |" not in PAGE] == []
