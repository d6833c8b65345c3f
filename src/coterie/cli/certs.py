"""certs: an authority, a server's certificate and a key for every client."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from coterie.cli import say
from coterie.core.errors import ConfigError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def certs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where they are written.")],
    clients: Annotated[
        str, typer.Option(help="Names joined by commas, or a number: 4 is 0,1,2,3.")
    ],
    host: Annotated[
        list[str] | None,
        typer.Option(help="A name or address under which clients reach the server."),
    ] = None,
    days: Annotated[int, typer.Option(min=1, help="How long they are valid.")] = 825,
) -> None:
    """Make certificates and keys for a federation.

    What is there already stays, so that clients can be added later.
    """
    from coterie.engines.flower import certs as keys

    names = named(clients)
    made = keys.make(folder, names, host or [], days)
    for path in made:
        say.result(str(path))
    if not made:
        say.note("nothing was missing")
    say.label(
        "next",
        f"copy {folder}/server to the server and each of {folder}/clients/* to its client;\n"
        f"{folder}/authority stays here: whoever has it can pretend to be the server",
    )


def named(clients: str) -> list[str]:
    """The names of the clients that a list of names, or a number of clients, stands for.

    >>> named("3"), named("berlin, lyon")
    (['0', '1', '2'], ['berlin', 'lyon'])
    """
    if clients.isdecimal():
        return [str(i) for i in range(int(clients))]
    names = [part.strip() for part in clients.split(",") if part.strip()]
    wrong = [n for n in names if not NAME.fullmatch(n)]
    if wrong or not names:
        raise ConfigError(
            f"{wrong[0] if wrong else clients!r} is no name for a client",
            code="C001",
            fix="letters, digits, dots, dashes: --clients berlin,lyon; or a number of clients",
        )
    return names
