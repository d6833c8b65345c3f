"""The site: these pages, made by `make docs` into build/docs. It refers to no other host."""

from __future__ import annotations

import re
from typing import Any

import coterie

project = "coterie"
author = "The coterie authors"
version = release = coterie.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["conf.py", "make.py", "planted.py"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "dollarmath"]
suppress_warnings = ["toc.not_readable"]  # a page may join later; one left out is still told

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}

html_theme = "furo"
html_title = f"coterie {release}"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_static_path: list[str] = []


def as_written(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are written for people: `x` is code there, and |x| a norm."""
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            lines[i] = re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", line).replace("|", "\\|")


def join(app: Any, name: str, text: list[str]) -> None:
    """A page that the menu does not name yet stands at its end."""
    if name == "index":
        named = set(text[0].splitlines())
        rest = sorted(p for p in app.env.found_docs if "/" not in p and p not in {*named, "index"})
        lines = ["```{toctree}", ":hidden:", ":caption: More", "", *rest, "```"]
        text[0] += "\n" + "\n".join(lines) + "\n" if rest else ""


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", join)
    app.connect("autodoc-process-docstring", as_written)
