"""What a person is told to type can be typed: what a shell would read otherwise is quoted."""

from __future__ import annotations

import ast
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import coterie
from coterie.core.shell import command

SOURCES = sorted(Path(coterie.__file__).parent.rglob("*.py"))
PRINTED = re.compile(r"\bcoterie [a-z]+ ([a-z.\-=]+ )*[a-z.]*=?$")  # and then comes a value


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), max_size=4))
def test_a_shell_reads_the_words_that_were_meant(words: list[str]) -> None:
    assert shlex.split(command(*words)) == ["coterie", *words]


def unquoted(text: str) -> list[str]:
    """Commands in formatted strings into which a value is put as it is."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            parts = [
                p.value if isinstance(p, ast.Constant) else "\0" for p in node.values
            ]  # fmt: skip
            found += [str(a) for a, b in pairwise(parts) if b == "\0" and PRINTED.search(str(a))]
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(SOURCES[0].parent)))
def test_no_command_is_put_together_by_hand(path: Path) -> None:
    assert unquoted(path.read_text()) == []


def test_a_command_put_together_by_hand_is_found() -> None:
    assert unquoted('f"coterie resume {folder}"')
    assert unquoted('f"next: coterie run --data {source} x"')
    assert not unquoted('f"see coterie.fit({x})"')
