"""The documentation is current: generated tables, links, examples it quotes, code it shows."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from coterie.methods import METHODS
from tests.test_readme import ROOT, blocks

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
NAMES = [str(p.relative_to(ROOT)) for p in PAGES]


@pytest.fixture(scope="module")
def make() -> Any:
    spec = importlib.util.spec_from_file_location("docs_make", DOCS / "make.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_tables_are_those_of_the_code(page: Path, make: Any) -> None:
    assert make.current(page.read_text()) == page.read_text(), "run: python docs/make.py"


def test_a_stale_table_is_seen(make: Any) -> None:
    page = "<!-- table: exits -->\nold\n<!-- end -->"
    assert "interrupted" in make.current(page)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    found = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text())
    lost = [link for link in found if not (page.parent / link).exists()]
    assert [link for link in lost if Path(link).stem not in METHODS] == []  # those: the next test


def test_every_method_has_a_page() -> None:
    pages = {p.stem for p in (DOCS / "methods").glob("*.md")} - {"index"}
    assert pages == set(METHODS)


def test_what_is_shown_of_own_methods_stands_in_the_examples() -> None:
    examples = [
        (ROOT / "examples" / f"{name}.py").read_text() for name in ("own_method", "own_task")
    ]
    for shown in blocks("python", (DOCS / "own-method.md").read_text()):
        assert any(shown in text for text in examples)
        assert len(shown.splitlines()) <= 60


@pytest.mark.parametrize(
    "name",
    ["partitions.md", "own-data.md", "own-model.md", "compare.md", "newcomers.md", "trackers.md"],
)
def test_python_of_the_documentation_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "docs"}
    for block in blocks("python", (DOCS / name).read_text()):
        exec(compile(block, name, "exec"), names)


def test_the_experiment_shown_is_one(tmp_path: Path) -> None:
    from coterie.config import load

    (shown,) = blocks("toml", (DOCS / "experiment-file.md").read_text())
    (tmp_path / "shown.toml").write_text(shown)
    assert load(tmp_path / "shown.toml").train.rounds == 50
