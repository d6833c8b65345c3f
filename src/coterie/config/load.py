"""From what was written to an experiment with every default, or to all that is wrong with it."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path as File
from typing import Any

from coterie.config import aliases, schema, source, tables, toml
from coterie.config.cross_checks import Sound, contradictions
from coterie.config.fields import Field
from coterie.config.problems import Findings, Path, Problem, ProblemsError, place
from coterie.config.schema import Config
from coterie.config.source import Written
from coterie.config.tables import TABLES, TOP
from coterie.config.validate import resolve_fields
from coterie.core.errors import ConfigError
from coterie.core.shell import command
from coterie.core.suggest import closest, similar
from coterie.core.units import count
from coterie.methods import METHODS, public_samples

Settings = Iterable[tuple[str, Any]]
# Keys that may name code: "package.module:thing".
CODE = (("method",), ("model", "name"), ("evaluate", "metrics"))


def load(
    file: File | str | None = None, settings: Settings = (), *, allow_code: bool = False
) -> Config:
    """The experiment of a file, with these settings of the command line above it.

    Code that the file itself names is imported only with `allow_code`: files are passed on.
    """
    written = source.read(file) if file is not None else Written(source.COMMAND_LINE)
    return resolve(written, settings, allow_code=allow_code)


def loads(
    text: str,
    name: str = "experiment.toml",
    settings: Settings = (),
    *,
    allow_code: bool = False,
) -> Config:
    """The experiment of a text, as `load` has that of a file.

    >>> config = loads('method = "fedprox"', settings=[("train.rounds", 3)])
    >>> config.hyper["mu"], config.train.rounds, config.train.batch_size
    (0.01, 3, 32)
    """
    return resolve(source.parse(text, name), settings, allow_code=allow_code)


def resolve(written: Written, settings: Settings = (), *, allow_code: bool = False) -> Config:
    """Every key with its value and where that came from; `ProblemsError` with all that is wrong."""
    for key, value in settings:
        source.override(written, key, value)
    refuse_several_methods(written)
    found = Findings()
    problems, renamed = found.problems, found.renamed
    tree = copy.deepcopy(written.tree)
    aliases.translate(tree, found)
    if not allow_code:
        problems += unasked_code(tree, written, renamed)
    method, own = method_of(tree, problems)
    table = tables.table_name(method)
    problems += unknown_at_top(tree, table)
    given = {k: v for k in (*TABLES, table) if isinstance(v := tree.get(k, {}), dict)}
    out: dict[str, Any] = resolve_fields(
        tables.keys_at_top(), {k: tree[k] for k in TOP if k in tree}, (), problems
    )
    out["method"] = method
    out |= resolve_tables(given, method, found)
    paper = fill_from_paper(method, given.get("train", {}), out["train"]) if own is not None else {}
    mine = given.get(table, {}) if own is not None else {}
    if own is not None:
        aliases.translate_options(mine, (table,), own, found)
        problems += set_elsewhere(mine, table)
    out["hyper"] = resolve_fields(own or {}, mine, (table,), problems)
    bad = {p.path for p in problems}
    problems += contradictions(Sound(out, table, own or {}, bad))
    if problems:
        problems = [pointed_to_its_table(p, own or {}) for p in problems]
        shown = [replace(p, path=renamed.get(p.path, p.path)) for p in problems]
        raise ProblemsError(written.name, shown, written.places)
    places = {**written.places, **{new: written.places.get(old, 0) for new, old in renamed.items()}}
    notes = [f"{'.'.join(o)} is called {'.'.join(n)} here" for n, o in renamed.items()]
    return Config(
        **{k: v for k, v in out.items() if k not in TABLES},
        **{name: cls(**out[name]) for name, cls in TABLES.items()},
        origins=dict(origins(tree, places, written.name, paper)),
        notes=(*written.notes, *notes),
    )


def refuse_several_methods(written: Written) -> None:
    """Refuse a list of methods: it asks for a comparison."""
    if isinstance(several := written.tree.get("method"), tuple):
        raise ConfigError(
            f"{written.name} lists {count(len(several), 'method')}",
            code="C018",
            fix=f"compare them: `{command('compare', written.name)}`; "
            f"or choose one: method={several[0]}"
            if several
            else "name a method",
        )


def unasked_code(
    tree: Mapping[str, Any], written: Written, renamed: Mapping[Path, Path]
) -> Iterator[Problem]:
    """Code that a file names, and nobody at the command line: importing it would run it."""
    for path in CODE:
        value: Any = tree
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        typed = written.places.get(renamed.get(path, path)) == source.COMMAND_LINE
        named = value if isinstance(value, tuple) else (value,)
        if any(isinstance(one, str) and ":" in one for one in named) and not typed:
            fix = "add --allow-code if you know what it does; nothing was imported"
            yield Problem(path, value, "code that is not coterie's, named by a file", fix)


def resolve_tables(
    given: Mapping[str, dict[str, Any]], method: str, found: Findings
) -> dict[str, Any]:
    """Every table with every key; some defaults of two tables follow from other settings."""
    divided = given.get("partition", {})
    if given.get("data", {}).get("owner") is not None and "kind" not in divided:
        divided = {"kind": "natural", **divided}  # owners were named to be the clients
    out = {
        name: tables.resolve_partition(divided, found)
        if name == "partition"
        else resolve_fields(tables.keys_of(name), given.get(name, {}), (name,), found.problems)
        for name in TABLES
    }
    train, said = out["train"], given.get("train", {})
    if isinstance(train["optimiser"], str):
        usual = schema.USUAL.get(train["optimiser"], {})
        train |= {key: value for key, value in usual.items() if key not in said}
    data, said = out["data"], given.get("data", {})
    if data["test"] in ("labels", "proportions") and "test_share" not in said:
        data["test_share"] = 1.0
    if "public" not in said:
        data["public"] = public_samples(method) or data["public"]
    return out


def method_of(
    tree: Mapping[str, Any], problems: list[Problem]
) -> tuple[str, dict[str, Field] | None]:
    """The method and its hyper-parameters; None for one that is not known."""
    default = tables.keys_at_top()["method"].default
    method = tree.get("method", default)
    if not isinstance(method, str):
        return default, None  # the type is reported with the other keys
    if method not in METHODS and ":" not in method:
        fix = similar(method.lower(), METHODS) or "`coterie methods` lists them"
        problems.append(Problem(("method",), method, "unknown method", fix))
        return method, None
    if any(p.path == ("method",) for p in problems):
        return method, None  # refused: it is not imported
    try:
        return method, tables.hyperparameters(method)
    except ConfigError as error:
        fix = f"{error.why}; {error.fix}"
        problems.append(Problem(("method",), method, "cannot be imported", fix))
        return method, None


def unknown_at_top(tree: Mapping[str, Any], own: str) -> Iterator[Problem]:
    """Keys and tables at the top that nothing here has."""
    for key, value in tree.items():
        if key in TOP:
            continue
        if key in TABLES or key == own:
            if not isinstance(value, Mapping):
                yield Problem((key,), value, "must be a table", f"write [{key}] above its keys")
        elif key in METHODS and isinstance(value, Mapping):
            fix = f'remove it, or set method = "{key}"'
            yield Problem((key,), value, f'method is "{own}"', fix)
        else:
            yield unknown_key_or_table(key, value, own)


def unknown_key_or_table(key: str, value: Any, own: str) -> Problem:
    """One unknown key or table at the top."""
    if isinstance(value, Mapping):
        known = [*TABLES, own]
        near = closest(key, known)
        listed = ", ".join(f"[{t}]" for t in known)
        fix = f"a similar table exists: [{near}]" if near else f"tables: {listed}"
        return Problem((key,), value, "unknown table", fix)
    if homes := tables.tables_with(key):
        return Problem((key,), value, "not at the top", f"put it under [{homes[0]}]")
    fix = similar(key, [*TOP, *TABLES], "key") or "keys here: method, seed"
    return Problem((key,), value, "unknown key", fix)


def pointed_to_its_table(problem: Problem, own: Mapping[str, Field]) -> Problem:
    """A problem with a key that another table has, told to go there."""
    *table, key = problem.path
    if problem.reason != "unknown key" or "similar" in problem.fix or not table:
        return problem
    if key in aliases.ALIASES:
        home, name = aliases.ALIASES[key]
        return replace(problem, fix=f"it is called {name}, under [{home}]")
    if (homes := tables.tables_with(key)) and key != "options":
        return replace(problem, fix=f"put it under [{homes[0]}]")
    return replace(problem, fix="it belongs to the method's own table") if key in own else problem


def set_elsewhere(mine: dict[str, Any], table: str) -> Iterator[Problem]:
    """Fields of a method that [train] or [server] sets."""
    for key, (home, instead) in tables.ELSEWHERE.items():
        if key in mine:
            yield Problem((table, key), mine.pop(key), f"set in [{home}]", f"there: {instead}")


def fill_from_paper(method: str, given: Mapping[str, Any], train: dict[str, Any]) -> dict[str, Any]:
    """With defaults = "paper": fill what was not given with the method's own; say what was."""
    if train["defaults"] != "paper":
        return {}
    theirs = tables.paper(method)
    own = {key: v for key, v in theirs.items() if key not in given}
    if "local_epochs" in given:
        own.pop("local_steps", None)  # who asks for epochs does not get the paper's steps
    if given.get("optimiser") not in (None, theirs.get("optimiser", "sgd")):
        for key in ("lr", *schema.OPTIMISER):
            own.pop(key, None)  # nor, with another optimiser, what suits the paper's
    train |= own
    return own


def origins(
    tree: Mapping[str, Any], places: Mapping[Path, int | str], name: str, paper: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Where each value came from that is not a default of the library."""
    for path in toml.leaves(tree):
        yield ".".join(path), place(path, name, places)[1]
    for key in paper:
        yield f"train.{key}", 'the method\'s own (train.defaults = "paper")'
