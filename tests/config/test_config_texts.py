"""Every key of an experiment file is explained by the comment behind its field in the source.

These comments are data: messages, `coterie init` and the documentation show them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from textwrap import indent

import pytest

from coterie.config import fields as reader
from coterie.config import schema
from coterie.config.fields import Field, comments
from coterie.config.tables import TABLES, hyperparameters, keys_at_top, keys_of, keys_of_kind
from coterie.config.validate import record_in
from coterie.data import kinds
from coterie.methods import METHODS

KEYS: dict[str, Mapping[str, Field]] = {
    "the top": keys_at_top(),
    **{f"[{table}]": keys_of(table) for table in TABLES},
    **{f"[partition] {name}": keys_of_kind(cls) for name, cls in kinds.KINDS.items()},
    **{f"[{name}]": hyperparameters(name) for name in METHODS},
}
MODULES = {
    schema.__name__,
    kinds.__name__,
    *(f"coterie.methods.{entry.path.split(':')[0]}" for entry in METHODS.values()),
}


def silent(keys: Mapping[str, Field], above: str = "") -> Iterator[str]:
    """The keys that nothing explains, those of nested tables included."""
    for key, field in keys.items():
        if not field.comment:
            yield f"{above}{key}"
        if record := record_in(field.annotation):
            yield from silent(record.known, f"{above}{key}.")


@pytest.mark.parametrize("table", KEYS)
def test_every_key_is_explained(table: str) -> None:
    assert not (found := list(silent(KEYS[table]))), (
        f"{table}: say what {', '.join(found)} means in a comment behind the field, "
        "as in `k: Count = 4  # how many clusters`"
    )


@pytest.mark.parametrize("width", [100, 60, 30])
@pytest.mark.parametrize("module", sorted(MODULES))
def test_no_explanation_is_lost_when_the_source_is_formatted(module: str, width: int) -> None:
    tree, lines = reader.parse(module)
    written = "\n".join(lines) + "\n"
    command = [sys.executable, "-m", "ruff", "format", "--isolated", f"--line-length={width}", "-"]
    done = subprocess.run(command, input=written, capture_output=True, check=True, text=True)
    for name in (node.name for node in tree.body if hasattr(node, "bases")):
        assert comments(done.stdout, name) == comments(written, name)


@pytest.mark.parametrize(
    "text",
    [
        "k: int = 3  # how many",
        "k: int = (\n    3\n)  # how many",
        "k: int = (\n    3  # how many\n)",
        'k: str = "#"  # how many',
    ],
)
def test_a_comment_on_any_line_of_a_field_explains_it(text: str) -> None:
    assert comments("class K:\n" + indent(text, "    "), "K") == {"k": "how many"}


def test_a_comment_above_a_field_does_not_explain_it() -> None:
    assert comments("class K:\n    # how many\n    k: int = 3\n", "K") == {"k": ""}
