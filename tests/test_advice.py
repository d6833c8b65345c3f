"""Advice works: every command, option and key that an error or a `next` line names is there.

Every text of the source is read, so that a new error with advice that cannot be followed fails
here. What an error says in a real situation is then done, in tests/cli/test_advice.py.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from coterie import cli
from coterie.config.schema import Config
from coterie.core.errors import CheckpointError
from coterie.methods import METHODS

SOURCE = Path(__file__).parents[1] / "src" / "coterie"
CLI = cli.typer.main.get_command(cli.app)
assert isinstance(CLI, click.Group)
COMMANDS = CLI.commands
OPTIONS = {o for c in [CLI, *COMMANDS.values()] for p in c.params for o in p.opts} | {"--help"}
TABLES = {name: getattr(Config(), name) for name in Config.__dataclass_fields__}
TABLES = {name: set(vars(table)) for name, table in TABLES.items() if hasattr(table, "__dict__")}
ADVISING = {"fix", "next", "again"}  # the names of what tells somebody what to do
SECURED = {"serve": {"--certs", "--insecure"}, "join": {"--certs", "--insecure"}}


class Text(NamedTuple):
    """A text of the source, with 1 for everything that is filled in."""

    place: str
    text: str
    line: bool  # a `next` line: a command, and behind four spaces what it does


def literal(node: ast.expr) -> Iterator[str]:
    """The texts that an expression may be."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            yield "".join(map(filled, parts))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from (a + b for a in literal(left) for b in literal(right))
        case ast.IfExp(body=body, orelse=other) | ast.BoolOp(values=[body, other]):
            yield from (*literal(body), *literal(other))
        case ast.Call(func=ast.Name(id="command")):
            yield filled(node)
        case ast.Call(func=ast.Attribute(value=inner)):
            yield from literal(inner)


def filled(part: ast.expr) -> str:
    """A piece of a text, with 1 for what is filled in; a command with its own words."""
    match part:
        case ast.Constant(value=value):
            return str(value)
        case ast.FormattedValue(value=value):
            return filled(value)
        case ast.Call(func=ast.Name(id="command"), args=[ast.Constant(), *_] as words):
            return shlex.join(["coterie", *map(filled, words)])
    return "1"


def advice(tree: ast.AST) -> Iterator[tuple[int, ast.expr, bool]]:
    """The expressions of a module that tell somebody what to do."""
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg="fix", value=value):
                yield value.lineno, value, False
            case ast.Assign(targets=[ast.Name(id="fix" | "again")], value=value):
                yield value.lineno, value, False
            case ast.Call(func=ast.Name(id="Code" | "Family"), args=args):
                yield from ((a.lineno, a, False) for a in args)
            case ast.Call(func=ast.Attribute(attr="label"), args=[ast.Constant(value=word), said]):
                if word in ADVISING:
                    yield said.lineno, said, True
            case ast.Call(func=ast.Name(id="under_way"), args=[_, said]):
                yield said.lineno, said, True


def texts() -> list[Text]:
    found = []
    for file in sorted(SOURCE.rglob("*.py")):
        for number, node, line in advice(ast.parse(file.read_text())):
            place = f"{file.relative_to(SOURCE)}:{number}"
            found += [Text(place, text, line) for text in literal(node)]
    return found


TEXTS = texts()


def commands(text: Text) -> list[str]:
    """The whole commands of a text: between backticks, or the beginning of a `next` line."""
    whole = re.findall(r"`(coterie [^`]*)`", text.text)
    if text.line and text.text.startswith("coterie "):
        whole.append(re.split(r" {4}|;", text.text)[0].strip())
    return whole


MENTIONED = [(t.place, command) for t in TEXTS for command in commands(t)]


def test_there_is_advice_to_look_at() -> None:
    assert len(TEXTS) > 250
    assert len(MENTIONED) > 40


@pytest.mark.parametrize(("place", "command"), MENTIONED)
def test_a_command_of_an_advice_can_be_typed(place: str, command: str) -> None:
    _, name, *words = shlex.split(command)
    assert name in COMMANDS, f"{place}: there is no command {name}"
    if name in SECURED and words:  # a bare name speaks of the command, and is none to type
        assert SECURED[name] & set(words), f"{place}: {command} would be refused without a key"
    if words:
        try:
            COMMANDS[name].make_context(name, ["1" if w == "N" else w for w in words])
        except CheckpointError:
            pass  # read, understood, and looked for: a folder RUN is not here
        except click.UsageError as error:
            pytest.fail(f"{place}: {command}: {error.format_message()}")


@pytest.mark.parametrize("text", [t for t in TEXTS if "coterie " in t.text], ids=lambda t: t.place)
def test_a_command_in_an_advice_stands_between_backticks(text: Text) -> None:
    """So that it can be told from the words around it: by a reader, and by the test above."""
    if text.line and text.text.startswith("coterie "):
        return
    rest = re.sub(r"`[^`]*`", "", text.text)
    loose = [name for name in re.findall(r"\bcoterie ([a-z]+)\b", rest) if name in COMMANDS]
    assert not loose, f"{text.place}: {text.text}"


@pytest.mark.parametrize("text", [t for t in TEXTS if "--" in t.text], ids=lambda t: t.place)
def test_an_option_in_an_advice_is_there(text: Text) -> None:
    ours = re.sub(r"\b(ray|python|pip) [^;,`]*", "", text.text)
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", ours))
    assert named <= OPTIONS, f"{text.place}: {named - OPTIONS}"


@pytest.mark.parametrize("text", TEXTS, ids=lambda t: t.place)
def test_a_key_in_an_advice_is_there(text: Text) -> None:
    for table, key in re.findall(r"(?<![\w./'])([a-z]+)\.([a-z_]+)\b(?!\()", text.text):
        if table in TABLES:
            assert key in TABLES[table] or table == "partition", f"{text.place}: {table}.{key}"
        elif table in METHODS:
            assert "=" in text.text
