"""The tables of an experiment file, and the keys that each of them may hold.

[partition] has a kind, how many clients, and the kind's own fields; the table of a method has its
hyper-parameters, the fields of its class.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path as File
from typing import Any, get_type_hints

from coterie.config import aliases, schema
from coterie.config.fields import Field, Required, attribute, comments, fields, home
from coterie.config.problems import Findings, Path, Problem
from coterie.config.schema import OPTIMISER, SCHEDULE, SOLVER, Config
from coterie.config.validate import resolve_fields, unknown_key
from coterie.core.errors import ConfigError, FieldError
from coterie.data import kinds
from coterie.methods import METHODS

TABLES: dict[str, type[Any]] = {
    f.name: type(f.default)
    for f in dataclasses.fields(Config)
    if dataclasses.is_dataclass(f.default)
}
TOP = ("method", "seed")  # what stands above all tables
ELSEWHERE = {  # fields of methods that other tables set, and by which keys
    "solver": ("train", ", ".join((*SOLVER, "optimiser", "schedule"))),
    "fraction": ("train", "participation"),
    "server": ("server", "optimiser, lr, beta1, beta2, tau, merge, byzantine, flag"),
}
PARTITION = "partition"


def keys_at_top() -> dict[str, Field]:
    """The keys that stand above all tables."""
    known = fields(schema.__name__, "Config")
    return {key: known[key] for key in TOP}


def keys_of(table: str) -> dict[str, Field]:
    """The keys of one table; in [partition] those of the kind stand beside them.

    >>> list(keys_of("partition"))
    ['kind', 'clients']
    """
    known = dict(fields(*home(schema.__name__, TABLES[table].__name__)))
    if table == PARTITION:
        del known["options"]
    return known


def keys_of_kind(kind: type[kinds.Kind]) -> dict[str, Field]:
    """The keys of one kind of partition.

    >>> list(keys_of_kind(kinds.Shards))
    ['per_client']
    """
    return fields(kind.__module__, kind.__name__)


def tables_with(key: str) -> list[str]:
    """The tables that have a key of this name."""
    return [table for table in TABLES if key in keys_of(table)]


def all_fields(method: str) -> dict[str, Field]:
    """Every field of a method's class; one of the table is read from its source, not imported."""
    if method in METHODS:
        module, name = METHODS[method].path.split(":")
        return fields(f"coterie.methods.{module}", name)
    return imported(method)


def refuses(method: str) -> Mapping[str, str]:
    """What a method's formulas cannot have, and why; one of the table is read, not imported.

    >>> list(refuses("scaffold"))
    ['optimiser', 'clip', 'server', 'merge']
    """
    if method in METHODS:
        module, name = METHODS[method].path.split(":")
        return attribute(f"coterie.methods.{module}", name, "refuses") or {}
    module, _, name = method.partition(":")
    return getattr(getattr(import_module(module), name), "refuses", {})


def hyperparameters(method: str) -> dict[str, Field]:
    """What a method's own table may hold: its fields without those that [train] and [server] set.

    >>> hyperparameters("fedprox")["mu"].comment
    'strength of the pull to the global model'
    """
    return {key: f for key, f in all_fields(method).items() if key not in ELSEWHERE}


def paper(method: str) -> dict[str, Any]:
    """What [train] holds if everything is the method's own."""
    found = all_fields(method)
    out: dict[str, Any] = {}
    if "fraction" in found:
        out["participation"] = found["fraction"].default
    if "solver" in found:
        out |= of_solver(found["solver"].default)
    return out


def of_solver(solver: Any) -> dict[str, Any]:
    """What [train] says of a recipe: the usual keys, and of the others what is not as usual."""
    usual = keys_of("train")
    parts = {key: (solver.optimiser, key) for key in OPTIMISER} | {"clip": (solver, "clip")}
    parts |= {key: (solver.schedule, name) for key, name in SCHEDULE.items()}
    found = {key: getattr(part, name, None) for key, (part, name) in parts.items()}
    found["optimiser"] = type(solver.optimiser).__name__.lower()
    return {key: getattr(solver, name) for key, name in SOLVER.items() if "." not in name} | {
        key: value
        for key, value in found.items()
        if value is not None and (key in SOLVER or value != usual[key].default)
    }


def table_name(method: str) -> str:
    """The name of a method's own table: its name, or the class of a method of yours.

    >>> table_name("fedprox"), table_name("mine.methods:FedMine")
    ('fedprox', 'FedMine')
    """
    return method.rsplit(":", 1)[-1]


def imported(method: str) -> dict[str, Field]:
    """The fields of somebody else's class, "package.module:Class", which has to be imported."""
    module, _, name = method.partition(":")
    try:
        cls = getattr(import_module(module), name)
        hints = get_type_hints(cls, include_extras=True)
        known = dataclasses.fields(cls)
    except (ImportError, AttributeError, NameError, TypeError, ValueError) as cause:
        raise ConfigError(
            f"method {method!r} cannot be imported",
            code="C040",
            why=str(cause),
            fix='write "package.module:Class", a dataclass in a module that is installed or lies '
            "in the folder where you are",
        ) from cause
    beside = own_comments(cls)
    return {
        f.name: Field(hints[f.name], default_of(f), beside.get(f.name, "")) for f in known if f.init
    }


def default_of(field: dataclasses.Field[Any]) -> Any:
    """A dataclass field's default, made if it has to be made."""
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return Required


def own_comments(cls: type) -> dict[str, str]:
    """The comments beside the fields of an imported class, where its source is at hand."""
    try:
        path = inspect.getsourcefile(cls)
        text = File(path).read_text(encoding="utf-8") if path else ""
    except (TypeError, OSError, UnicodeDecodeError):
        return {}
    return comments(text, cls.__name__)


def resolve_partition(given: Mapping[str, Any], found: Findings) -> dict[str, Any]:
    """The table with every default; a composition has a sub-table for each of its parts."""
    known = keys_of(PARTITION)
    plain = {k: v for k, v in given.items() if k in known}
    out = resolve_fields(known, plain, (PARTITION,), found.problems)
    rest = {k: v for k, v in given.items() if k not in known}
    if not isinstance(out["kind"], str):
        return out | {"options": {}}
    try:
        kind = kinds.parse(out["kind"])
    except ConfigError as error:
        found.problems.append(Problem((PARTITION, "kind"), out["kind"], *refusal(error)))
        return out | {"options": {}}
    out["kind"] = kinds.describe(kind)["kind"]
    parts = kinds.parts_of(kind)
    if parts[0].needs_owners and "clients" not in given:
        out["clients"] = None
    if len(parts) == 1:
        return out | {"options": resolve_kind(kind, rest, (PARTITION,), found)}
    names = {part.name for part in parts}
    for key, value in rest.items():
        if key not in names:
            found.problems.append(misplaced(key, value, parts))
    tables = {k: v for k, v in rest.items() if k in names and isinstance(v, Mapping)}
    return out | {
        "options": {
            part.name: resolve_kind(part, tables.get(part.name, {}), (PARTITION, part.name), found)
            for part in parts
        }
    }


def options_of(kind: kinds.Kind) -> dict[str, Field]:
    """The fields of one kind; what its text already set stands in for the default."""
    known = keys_of_kind(type(kind))
    return {key: replace(f, default=getattr(kind, key)) for key, f in known.items()}


def resolve_kind(
    kind: kinds.Kind, given: Mapping[str, Any], path: Path, found: Findings
) -> dict[str, Any]:
    """The fields of one kind, checked by themselves and then together."""
    known, mine = options_of(kind), dict(given)
    aliases.translate_options(mine, path, known, found)
    problems = found.problems
    before = len(problems)
    for key in mine.keys() - known.keys():
        problems.append(unknown_to_kind(key, mine.pop(key), path, kind.name, known))
    plain = keys_of_kind(type(kind))
    for key in known.keys() & mine.keys():
        if known[key].default not in (plain[key].default, mine[key]):
            fix = f"the kind's text says {known[key].default}; keep one of the two"
            problems.append(Problem((*path, key), mine[key], "given twice", fix))
    out = resolve_fields(known, mine, path, problems)
    if len(problems) == before:
        try:
            made = type(kind)(**out)
            out = {key: getattr(made, key) for key in out}  # what a value stands for, as 3 turns
            usual = type(kind)()
            silent = {key for key in kind.unsaid if out[key] == getattr(usual, key)}
            return {key: value for key, value in out.items() if key not in silent}
        except FieldError as cause:
            for fault in cause.faults:
                key = fault.field.split(".")[0]
                problems.append(Problem((*path, key), out[key], "not possible", fault.reason))
    return out


def refusal(error: ConfigError) -> tuple[str, str]:
    """Why a kind's text is refused, and what to do."""
    why = error.why.replace("\n", "; ")
    if error.code == "C020":
        return "unknown kind", why or f"kinds: {', '.join(kinds.KINDS)}"
    if error.code == "C021":
        return why, error.fix
    return "cannot be composed", f"{why}; {error.fix}"


def unknown_to_kind(
    key: str, value: Any, path: Path, kind: str, known: Mapping[str, Field]
) -> Problem:
    """A key that this kind does not have; another kind might."""
    others = [n for n, cls in kinds.KINDS.items() if key in keys_of_kind(cls)]
    if not others:
        here = (*known, *(("kind", "clients") if len(path) == 1 else ()))
        return unknown_key(key, value, path, here)
    fix = f"a key of {', '.join(others)}; {kind} has {', '.join(known) or 'none'}"
    return Problem((*path, key), value, "unknown key", fix)


def misplaced(key: str, value: Any, parts: tuple[kinds.Kind, ...]) -> Problem:
    """A key of a composition that stands in none of its sub-tables."""
    homes = [p.name for p in parts if key in options_of(p)]
    tables = ", ".join(f"[{PARTITION}.{p.name}]" for p in parts if options_of(p))
    if homes:
        return Problem(
            (PARTITION, key), value, "not here", f"put it under [{PARTITION}.{homes[0]}]"
        )
    reason = "unknown table" if isinstance(value, Mapping) else "unknown key"
    return Problem((PARTITION, key), value, reason, f"tables of this kind: {tables}")
