"""The tables of an experiment file, and the keys that each of them may hold.

[partition] has a kind, how many clients, and the kind's own fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from coterie.config import aliases, schema
from coterie.config.fields import Field, fields
from coterie.config.problems import Path, Problem
from coterie.config.validate import resolve_fields
from coterie.core.errors import ConfigError
from coterie.core.suggest import similar
from coterie.data import kinds

TABLES: dict[str, type[Any]] = {
    "data": schema.Data,
    "partition": schema.Partition,
    "model": schema.Model,
    "train": schema.Train,
    "evaluate": schema.Evaluate,
    "newcomers": schema.Newcomers,
    "engine": schema.Engine,
    "output": schema.Output,
}
TOP = ("method", "seed")  # what stands above all tables
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
    known = dict(fields(schema.__name__, TABLES[table].__name__))
    if table == PARTITION:
        del known["options"]
    return known


def keys_of_kind(kind: type[kinds.Kind]) -> dict[str, Field]:
    """The keys of one kind of partition.

    >>> list(keys_of_kind(kinds.Shards))
    ['per_client']
    """
    return fields(kinds.__name__, kind.__name__)


def tables_with(key: str) -> list[str]:
    """The tables that have a key of this name."""
    return [table for table in TABLES if key in keys_of(table)]


def resolve_partition(
    given: Mapping[str, Any], renamed: dict[Path, Path], problems: list[Problem]
) -> dict[str, Any]:
    """The table with every default; a composition has a sub-table for each of its parts."""
    known = keys_of(PARTITION)
    out = resolve_fields(
        known, {k: v for k, v in given.items() if k in known}, (PARTITION,), problems
    )
    rest = {k: v for k, v in given.items() if k not in known}
    if not isinstance(out["kind"], str):
        return out | {"options": {}}
    try:
        kind = kinds.parse(out["kind"])
    except ConfigError as error:
        problems.append(Problem((PARTITION, "kind"), out["kind"], *refusal(error)))
        return out | {"options": {}}
    out["kind"] = kinds.describe(kind)["kind"]
    parts = kinds.parts_of(kind)
    if parts[0].needs_owners and "clients" not in given:
        out["clients"] = None
    if len(parts) == 1:
        return out | {"options": resolve_kind(kind, rest, (PARTITION,), renamed, problems)}
    names = {part.name for part in parts}
    for key, value in rest.items():
        if key not in names:
            problems.append(misplaced(key, value, parts))
    tables = {k: v for k, v in rest.items() if k in names and isinstance(v, Mapping)}
    return out | {
        "options": {
            part.name: resolve_kind(
                part, tables.get(part.name, {}), (PARTITION, part.name), renamed, problems
            )
            for part in parts
        }
    }


def options_of(kind: kinds.Kind) -> dict[str, Field]:
    """The fields of one kind; what its text already set stands in for the default."""
    known = keys_of_kind(type(kind))
    return {key: replace(f, default=getattr(kind, key)) for key, f in known.items()}


def resolve_kind(
    kind: kinds.Kind,
    given: Mapping[str, Any],
    path: Path,
    renamed: dict[Path, Path],
    problems: list[Problem],
) -> dict[str, Any]:
    """The fields of one kind, checked by themselves and then together."""
    known, mine = options_of(kind), dict(given)
    renamed |= aliases.translate_options(mine, path, known, problems)
    before = len(problems)
    for key in mine.keys() - known.keys():
        problems.append(unknown_key(key, mine.pop(key), path, kind.name, known))
    plain = keys_of_kind(type(kind))
    for key in known.keys() & mine.keys():
        if known[key].default not in (plain[key].default, mine[key]):
            fix = f"the kind's text says {known[key].default}; keep one of the two"
            problems.append(Problem((*path, key), mine[key], "given twice", fix))
    found = resolve_fields(known, mine, path, problems)
    if len(problems) == before:
        try:
            type(kind)(**found)
        except ValidationError as cause:
            for error in cause.errors():
                key = str(error["loc"][0])
                reason = error["msg"].removeprefix("Value error, ")
                problems.append(Problem((*path, key), found[key], "not possible", reason))
    return found


def refusal(error: ConfigError) -> tuple[str, str]:
    """Why a kind's text is refused, and what to do."""
    why = error.why.replace("\n", "; ")
    if error.code == "C020":
        return "unknown kind", why or f"kinds: {', '.join(kinds.KINDS)}"
    if error.code == "C021":
        return why, error.fix
    return "cannot be composed", f"{why}; {error.fix}"


def unknown_key(key: str, value: Any, path: Path, kind: str, known: Mapping[str, Field]) -> Problem:
    """A key that this kind does not have; another kind might."""
    here = [*known, *(("kind", "clients") if len(path) == 1 else ())]
    others = [n for n, cls in kinds.KINDS.items() if key in keys_of_kind(cls)]
    if others:
        fix = f"a key of {', '.join(others)}; {kind} has {', '.join(known) or 'none'}"
    else:
        fix = similar(key, here, "key") or f"keys here: {', '.join(here)}"
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
