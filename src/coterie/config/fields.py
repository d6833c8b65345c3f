"""The fields of a class read from its source: names, types, defaults, comments; nothing imported.

A method's file imports torch; its hyper-parameters are plain values. Reading them from the text
keeps a bad experiment file a matter of milliseconds. The comment behind a field is what messages,
`init` and the documentation say of it:

    k: Count = 4  # how many clusters
"""

from __future__ import annotations

import ast
import builtins
import io
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, create_model

PACKAGE = Path(__file__).parents[1]
LIGHT = ("typing", "dataclasses", "collections.abc", "annotated_types", "coterie.core.bounds")


class Required:
    """The default of a field that has none."""


@dataclass(frozen=True)
class Field:
    """One field of a record: its type, its default and the comment that explains it."""

    annotation: Any
    default: Any = Required
    comment: str = ""


class Record(BaseModel):
    """A nested table: the fields of a class that was read, not imported."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    known: ClassVar[Mapping[str, Field]]


class Names(dict[str, Any]):
    """What the names in a module's source mean, looked up one by one."""

    def __init__(self, module: str) -> None:
        super().__init__()
        self.module = module

    def __missing__(self, name: str) -> Any:
        return lookup(self.module, name)


@cache
def parse(module: str) -> tuple[ast.Module, tuple[str, ...]]:
    """A module of this package as a tree and as its lines."""
    stem = PACKAGE.joinpath(*module.split(".")[1:])
    path = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
    text = path.read_text(encoding="utf-8")
    return ast.parse(text, str(path)), tuple(text.splitlines())


def home(module: str, name: str) -> tuple[str, str]:
    """The module that a name comes from and what it is called there; followed inside the package.

    >>> home("coterie.config.load", "Field"), home("coterie.config.load", "File")
    (('coterie.config.fields', 'Field'), ('pathlib', 'Path'))
    """
    for node in parse(module)[0].body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    origin = node.module, alias.name
                    return home(*origin) if is_read(node.module) else origin
    return module, name


def is_read(module: str) -> bool:
    """Whether a module is read as text: those of the package, but for the light ones."""
    return module.startswith("coterie.") and module not in LIGHT


def class_in(module: str, name: str) -> ast.ClassDef | None:
    """A class that a module of the package defines."""
    classes = (n for n in parse(module)[0].body if isinstance(n, ast.ClassDef))
    return next((n for n in classes if n.name == name), None)


def lookup(module: str, name: str) -> Any:
    """What a name at the top of a module means; a class of the package becomes a `record`."""
    module, name = home(module, name)
    if module in LIGHT:
        return getattr(import_module(module), name)
    if not is_read(module):
        raise NameError(f"{module}.{name} cannot be read without importing {module}")
    if class_in(module, name):
        return record(module, name)
    for node in parse(module)[0].body:
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                return evaluate(module, value)
    return getattr(builtins, name)


def evaluate(module: str, node: ast.expr) -> Any:
    """The value of an expression in a module's source."""
    return eval(compile(ast.Expression(node), module, "eval"), {"__builtins__": {}}, Names(module))


@cache
def record(module: str, name: str) -> Any:
    """A pydantic model with the fields of a class of the package; an interface admits anything."""
    node = class_in(module, name)
    if node and any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases):
        return Any
    known = fields(module, name)
    given: dict[str, Any] = {
        key: (f.annotation, ... if f.default is Required else f.default) for key, f in known.items()
    }
    model: type[Record] = create_model(name, __base__=Record, **given)
    model.known = known
    return model


@cache
def fields(module: str, name: str) -> dict[str, Field]:
    """The fields of a class, those of its bases first.

    >>> fields("coterie.methods.fedavg", "FedProx")["mu"].comment
    'strength of the pull to the global model'
    """
    found: dict[str, Field] = {}
    node = class_in(module, name)
    assert node, f"{module} defines no class {name}"
    for base in reversed(node.bases):
        above = home(module, base.id) if isinstance(base, ast.Name) else ("", "")
        found |= fields(*above) if is_read(above[0]) and class_in(*above) else {}
    for key, line in declared(node):
        found[key] = Field(
            evaluate(module, line.annotation),
            evaluate_default(module, line.value),
            comment_of(line, parse(module)[1]),
        )
    return found


@cache
def attribute(module: str, name: str, key: str) -> Any:
    """What a class of the package, or the nearest of its bases, sets a name to; None if none does.

    >>> attribute("coterie.methods.fedavg", "FedProx", "kind")
    'shared'
    """
    node = class_in(module, name)
    for line in node.body if node else ():
        match line:
            case (
                ast.Assign(targets=[ast.Name(id=target)], value=ast.expr() as value)
                | ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value)
            ) if target == key:
                return evaluate(module, value)
    for base in node.bases if node else ():
        above = home(module, base.id) if isinstance(base, ast.Name) else ("", "")
        if is_read(above[0]) and (found := attribute(*above, key)) is not None:
            return found
    return None


def declared(node: ast.ClassDef) -> Iterator[tuple[str, ast.AnnAssign]]:
    """The lines of a class that declare a field, each with the field's name."""
    for line in node.body:
        match line:
            case ast.AnnAssign(target=ast.Name(id=key)) if "'ClassVar'" not in ast.dump(line):
                yield key, line


def evaluate_default(module: str, node: ast.expr | None) -> Any:
    """The default of a field; `field(default_factory=...)` gives what the factory makes."""
    match node:
        case None:
            return Required
        case ast.Call(func=ast.Name(id="field"), keywords=keywords):
            given = {k.arg: k.value for k in keywords}
            if "default" in given:
                return evaluate(module, given["default"])
            factory = given["default_factory"]
            if isinstance(factory, ast.Lambda):
                return evaluate(module, factory.body)
            return evaluate(module, factory)()
        case _:
            return evaluate(module, node)


def comment_of(node: ast.stmt, lines: Sequence[str]) -> str:
    """The comment on a statement's own lines, wherever a formatter has put it."""
    text = "\n".join(lines[node.lineno - 1 : node.end_lineno]).strip()
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    found = (t.string for t in tokens if t.type == tokenize.COMMENT)
    return " ".join(comment.removeprefix("#").strip() for comment in found)


def comments(text: str, name: str) -> dict[str, str]:
    """The comments beside the fields of one class of a source text."""
    lines = text.splitlines()
    return {
        key: comment_of(line, lines)
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef) and node.name == name
        for key, line in declared(node)
    }
