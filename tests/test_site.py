"""The site is made without a warning, holds every page, and refers to no other host."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from coterie.methods import METHODS

DOCS = Path(__file__).parents[1] / "docs"
LOADS = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?P<src>[^"'>\s]+)"""
    r"""|<link\b(?=[^>]*rel=["']?(?:stylesheet|preload|icon|preconnect))[^>]*"""
    r"""\bhref=["']?(?P<href>[^"'>\s]+)"""
)
ELSEWHERE = re.compile(r"^(?:https?:)?//")
IMPORTS = re.compile(r"""(?:@import\s+|url\()\s*["']?((?:https?:)?//[^"')\s]+)""")


def loaded(html: str) -> list[str]:
    """What a browser would fetch from another host for a page."""
    found = [m["src"] or m["href"] for m in LOADS.finditer(html)]
    return [address for address in found if ELSEWHERE.match(address)] + IMPORTS.findall(html)


def test_the_eye_for_other_hosts_sees() -> None:
    assert loaded('<script async src="https://cdn/x.js"></script>') == ["https://cdn/x.js"]
    assert loaded('<link href="//cdn/x.css" rel="stylesheet">') == ["//cdn/x.css"]
    assert loaded("<style>@import 'https://cdn/f.css';</style>") == ["https://cdn/f.css"]
    assert loaded('<a href="https://toml.io">a link is not loaded</a>') == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("furo")
    out = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    done = subprocess.run([*words, DOCS, out], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.slow
def test_every_page_is_there_and_in_the_menu(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS)).with_suffix(".html").exists(), page
    menu = (site / "index.html").read_text()
    assert [name for name in METHODS if f'href="methods/{name}.html"' not in menu] == []


@pytest.mark.slow
def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    assert {p.name: found for p in pages if (found := loaded(p.read_text()))} == {}
    styles = [p for p in site.rglob("*.css") if IMPORTS.search(p.read_text())]
    assert styles == []
