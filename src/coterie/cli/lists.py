"""Commands that list and explain: methods, models, datasets, help."""

from __future__ import annotations

from typing import Annotated

import click
import typer

from coterie.cli import say
from coterie.cli.options import Json
from coterie.core.errors import ConfigError
from coterie.core.shell import command
from coterie.core.suggest import similar


def methods(
    name: Annotated[str | None, typer.Argument(help="One method, explained.")] = None,
    json: Json = False,
) -> None:
    """List the methods, or explain one.

    Its paper, what it uploads, its hyper-parameters.
    """
    from coterie.methods import METHODS

    if name:
        method(name, json)
        return
    if json:
        for m in METHODS.values():
            fields = {"name": m.name, "class": m.cls, "paper": m.paper}
            say.line({**fields, "family": m.family, "uploads": m.uploads})
        return
    rows = [(m.name, m.family, m.summary, m.uploads) for m in METHODS.values()]
    say.result(say.table(("name", "family", "what it does", "leaves the client"), rows))
    say.label("next", "coterie methods NAME    its paper and its hyper-parameters")


def method(name: str, json: bool) -> None:
    """One method on one page."""
    from coterie.config import toml
    from coterie.config.fields import Required
    from coterie.config.tables import hyperparameters, paper, refuses, table_name
    from coterie.config.validate import describe, plain
    from coterie.methods import METHODS

    if name not in METHODS and ":" not in name:
        raise ConfigError(
            f"unknown method {name!r}",
            code="C041",
            fix=similar(name.lower(), METHODS) or "`coterie methods` lists them",
        )
    own = {
        key: (
            None if f.default is Required else plain(f.default),
            describe(f.annotation),
            f.comment,
        )
        for key, f in hyperparameters(name).items()
    }
    about = METHODS.get(name)
    if json:
        fields = {"name": name, "class": name.rsplit(":", 1)[-1]}
        if about:
            fields |= {"class": about.cls, "paper": about.paper, "family": about.family}
            fields |= {"uploads": about.uploads}
        keys = ("default", "type", "meaning")
        say.line({**fields, "fields": {k: dict(zip(keys, v, strict=True)) for k, v in own.items()}})
        return
    if about:
        say.result(f"{name}    {about.summary}\n")
        say.result(f"class    coterie.{about.cls}\npaper    {about.paper}")
        say.result(f"family   {about.family}\nuploads  {about.uploads}")
        for key, why in refuses(name).items():
            say.result(f"refuses  {key}: {why}")
    if own:
        say.result(f"\nits own table in an experiment file, [{table_name(name)}]:")
        rows = [
            (k, "not set" if d is None else toml.inline(d), t, c) for k, (d, t, c) in own.items()
        ]
        say.result(say.table(("key", "default", "may be", "meaning"), rows))
    solver = ", ".join(f"{k} = {toml.inline(v)}" for k, v in paper(name).items())
    if solver:
        say.result(f'\nits own training (with train.defaults = "paper"):\n{solver}')
    say.label("next", command("init", "my.toml", "--method", name))


def models(json: Json = False) -> None:
    """List the networks."""
    from coterie.models.zoo import MODELS

    if json:
        for m in MODELS.values():
            say.line(
                {
                    "name": m.name,
                    "layers": m.summary,
                    "used_by": m.used_by,
                    "input": list(m.input),
                    "classes": m.classes,
                    "parameters": m.parameters,
                    "smallest_image": m.least,
                    "norms": list(m.norms),
                    "options": list(m.options),
                }
            )
        return
    rows = []
    for m in MODELS.values():
        least = f"{m.least}x{m.least}" if m.least else "anything"
        rows.append((m.name, f"{m.parameters:,}", least, m.summary, m.used_by))
    say.result(say.table(("name", "parameters", "takes from", "layers", "used by"), rows))
    say.label("next", 'coterie run --model NAME    or your own: --model "package.module:function"')


def datasets(json: Json = False) -> None:
    """List the named sets, and which are here."""
    from coterie.data import named

    found = {name: named.find(name) for name in named.NAMED}
    if json:
        for name, entry in named.NAMED.items():
            say.line(
                {
                    "name": name,
                    "description": entry.description,
                    "shape": list(entry.shape),
                    "classes": entry.classes,
                    "here": entry.embedded or found[name] is not None,
                    "path": str(found[name]) if found[name] else None,
                    "get": None if entry.embedded else entry.how(),
                }
            )
        return
    rows = [
        (n, "comes with coterie" if e.embedded else found[n] or "not here", e.description)
        for n, e in named.NAMED.items()
    ]
    say.result(say.table(("name", "where", "what"), rows))
    say.note(f"looked in {', '.join(map(str, named.folders()))} (COTERIE_DATA adds folders)")
    say.label("next", "coterie data NAME    what it holds, or the command that gets it")


def explain(
    code: Annotated[
        str | None, typer.Argument(metavar="[CODE|COMMAND]", help="As C012, or as run.")
    ] = None,
    json: Json = False,
) -> None:
    """Explain an error code or a command, or list all codes."""
    from coterie.core.codes import CODES, FAMILIES

    if code and (usage := usage_of(code)):
        say.result(usage)
        return

    facts = {k: {"code": k, "exit": FAMILIES[k[0]].exit, **c._asdict()} for k, c in CODES.items()}
    key = None if code is None else code.upper()
    if key is not None and key not in CODES:
        raise ConfigError(
            f"there is no code or command {code}",
            code="C016",
            fix="`coterie help` lists the codes, --help the commands",
        )
    if json:
        for fact in [facts[key]] if key else facts.values():
            say.line(fact)
    elif key:
        found, family = CODES[key], FAMILIES[key[0]]
        say.result(f"{key}  {found.title}    ({family.title}, exit code {family.exit})\n")
        say.result(f"{found.explanation}\n\nwhat to do: {found.fix}")
    else:
        rows = [(f["code"], f["exit"], f["title"]) for f in facts.values()]
        say.result(say.table(("code", "exit", "what happened"), rows))
        say.label("next", "coterie help CODE    one of them explained")


def usage_of(name: str) -> str:
    """How a command is used, as its --help says it; nothing if there is no such command."""
    group = click.get_current_context().find_root().command
    command = getattr(group, "commands", {}).get(name)
    if command is None:
        return ""
    with click.Context(command, info_name=f"coterie {name}") as context:
        return str(command.get_help(context))
