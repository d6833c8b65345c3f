"""The fields of a class read from its source: names, types, defaults, comments; nothing imported.

A method's file imports torch; its hyper-parameters are plain values. Reading them from the text
keeps a bad experiment file a matter of milliseconds.
"""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

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


class Names(dict[str, Any]):
    """What the names in a module's source mean, looked up one by one."""

    def __init__(self, module: str) -> None:
        super().__init__()
        self.module = module

    def __missing__(self, name: str) -> Any:
        return lookup(self.module, name)


@cache
def parse(module: str) -> tuple[ast.Module, tuple[bytes, ...]]:
    """A module of this package as a tree and as its lines."""
    stem = PACKAGE.joinpath(*module.split(".")[1:])
    path = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
    text = path.read_bytes()
    return ast.parse(text, str(path)), tuple(text.splitlines())


def lookup(module: str, name: str) -> Any:
    """What a name at the top of a module means; a class of the package becomes a `record`."""
    if module in LIGHT:
        return getattr(import_module(module), name)
    if not module.startswith("coterie."):
        raise NameError(f"{module}.{name} cannot be read without importing {module}")
    for node in parse(module)[0].body:
        match node:
            case ast.ClassDef() if node.name == name:
                return record(module, name)
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                return evaluate(module, value)
            case ast.ImportFrom(module=str(origin)):
                for alias in node.names:
                    if name == (alias.asname or alias.name):
                        return lookup(origin, alias.name)
    return getattr(builtins, name)


def evaluate(module: str, node: ast.expr) -> Any:
    """The value of an expression in a module's source."""
    return eval(compile(ast.Expression(node), module, "eval"), {"__builtins__": {}}, Names(module))


@cache
def record(module: str, name: str) -> Any:
    """A pydantic model with the fields of a class of the package; an interface admits anything."""
    if "Protocol" in bases(module, name):
        return Any
    from coterie.config.validate import table

    return table(name, fields(module, name))


@cache
def fields(module: str, name: str) -> dict[str, Field]:
    """The fields of a class, those of its bases first.

    >>> fields("coterie.tasks.optimiser", "SGD")["momentum"].comment
    "PyTorch's; the buffer starts at zero in every training"
    """
    tree, lines = parse(module)
    found: dict[str, Field] = {}
    (node,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    for base in reversed(node.bases):
        home = origin_of(module, base.id) if isinstance(base, ast.Name) else None
        found |= fields(*home) if home else {}
    for line in node.body:
        match line:
            case ast.AnnAssign(target=ast.Name(id=key)) if not is_class_var(line.annotation):
                default = evaluate_default(module, line.value)
                found[key] = Field(
                    evaluate(module, line.annotation), default, comment_of(line, lines)
                )
    return found


def bases(module: str, name: str) -> list[str]:
    """The names of the classes that a class is made from."""
    (node,) = (n for n in parse(module)[0].body if isinstance(n, ast.ClassDef) and n.name == name)
    return [base.id for base in node.bases if isinstance(base, ast.Name)]


def origin_of(module: str, name: str) -> tuple[str, str] | None:
    """The module of the package where a class is defined, None for a class from elsewhere."""
    for node in parse(module)[0].body:
        match node:
            case ast.ClassDef() if node.name == name:
                return module, name
            case ast.ImportFrom(module=str(origin)) if origin.startswith("coterie."):
                for alias in node.names:
                    if name == (alias.asname or alias.name):
                        return origin_of(origin, alias.name)
    return None


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


def is_class_var(annotation: ast.expr) -> bool:
    """Whether an annotation marks something that is no field."""
    return any(
        isinstance(n, ast.Name | ast.Attribute)
        and (n.id if isinstance(n, ast.Name) else n.attr) == "ClassVar"
        for n in ast.walk(annotation)
    )


def comment_of(node: ast.stmt, lines: tuple[bytes, ...]) -> str:
    """The comment that ends a statement's last line."""
    assert node.end_lineno is not None
    rest = lines[node.end_lineno - 1][node.end_col_offset :].decode().strip()
    return rest.removeprefix("#").strip()


def comments(text: bytes, name: str) -> dict[str, str]:
    """The comments beside the fields of one class of a source text."""
    classes = (n for n in ast.parse(text).body if isinstance(n, ast.ClassDef) and n.name == name)
    lines = tuple(text.splitlines())
    return {
        line.target.id: comment_of(line, lines)
        for node in classes
        for line in node.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }
