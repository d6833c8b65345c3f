"""The command that attacks what clients send: audit."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli import options, say
from coterie.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.audit.findings import Audit

CLIENTS = 20  # that are looked at, unless another number is asked for
MOST = 3  # clients that are shown in the terminal


def audit(
    source: Annotated[
        Path, typer.Argument(metavar="RUN|FILE", help="A run, or an experiment file.")
    ],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings above the file.")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Of a file: these methods, as fedavg,cflgt,dapfl.")
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=0, help="Played at most; 0: until every task was asked, up to 30.")
    ] = 0,
    clients: Annotated[int, typer.Option(min=2, help="Clients that are looked at.")] = CLIENTS,
    out: Annotated[Path | None, typer.Option(help="The folder; else the run's.")] = None,
    allow_code: options.AllowCode = False,
    json: options.Json = False,
) -> None:
    """Attack what clients send.

    What left each client, and what a curious server makes of it: samples rebuilt, labels guessed,
    who was trained on. Attacks that must succeed and attacks that must fail go with it.
    """
    if source.is_dir() or not source.exists():
        options.a_run(source)
        if settings or methods:
            raise ConfigError(
                "a run has its settings and its method",
                code="C001",
                fix="audit its experiment file to try others",
            )
    from coterie.report.again import typed
    from coterie.studies.audits import running as audits

    if source.is_dir():
        found = audits.audit_run(source, rounds=rounds, clients=clients, allow_code=allow_code)
        folder = out or source
    else:
        from coterie.studies.run.experiment import fresh

        several = methods.split(",") if methods else [None]
        configs = [
            options.experiment(
                [str(source), *(settings or [])], {"method": name}, allow_code=allow_code
            )
            for name in several
        ]
        tell = (lambda text: None) if json else (lambda text: say.label("audit", text))
        found = audits.audit_file(configs[0], configs, rounds=rounds, clients=clients, tell=tell)
        folder = out or fresh(configs[0]).with_name(f"{fresh(configs[0]).name}_audit")
    title = f"Audit · {', '.join(a.method for a in found)}"
    again = ["audit", str(source), *(settings or []), *flags(methods, rounds, clients, out)]
    again += ["--allow-code"] * allow_code
    written = audits.write(folder, found, title, typed(Path.cwd(), again))
    if json:
        for one in found:
            say.line(audits.facts(one))
        return
    show(found)
    say.page(written[0])


def flags(methods: str | None, rounds: int, clients: int, out: Path | None) -> list[str]:
    """The options that ask for the same audit again.

    >>> flags("fedavg", 0, 5, None)
    ['--methods', 'fedavg', '--clients', '5']
    """
    given = {
        "--methods": methods,
        "--rounds": rounds or None,
        "--clients": clients if clients != CLIENTS else None,
        "--out": out,
    }
    return [
        str(word) for flag, value in given.items() if value is not None for word in (flag, value)
    ]


def show(found: Sequence[Audit]) -> None:
    """The controls, and the tables of every method; of clients, those that are told most."""
    from coterie.report.audited import control_table, overview, tables

    say.result(control_table(found[0].controls).to("text"))
    for one in found:
        for table in tables(one):
            rows, more = table.rows, ""
            if table.title == "Members" and len(rows) > MOST:
                clusters = [row for row in rows if not row[0].startswith("client")]
                people = sorted((row for row in rows if row not in clusters), key=itemgetter(2))
                rows = (*clusters, *people[: -MOST - 1 : -1])
                more = f"{len(table.rows) - len(rows)} more are on the page"
            if rows:
                say.result(f"\n{one.method} · {table.title}")
                say.result(say.table(table.head, rows))
            if more:
                say.label("note", more)
        for text in one.notes:
            say.label("note", text)
        say.result(f"\n{one.sentence}")
    if len(found) > 1:
        say.result(f"\n{overview(found).to('text')}")
