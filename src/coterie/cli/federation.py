"""Commands of a real federation: certs makes its keys, serve is its server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import options, running, say
from coterie.cli.options import AllowCode, Insecure, JsonEvents, Out, Quiet, Settings
from coterie.cli.progress import watching
from coterie.cli.train import conclude
from coterie.core import extras
from coterie.core.errors import ConfigError
from coterie.core.events import Event, Listener
from coterie.core.shell import command
from coterie.core.units import count

if TYPE_CHECKING:
    from coterie.config import Config
    from coterie.engines.flower.serving import ServerAddress

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
HOST, PORT = "127.0.0.1", 9093  # as in engines.flower.serving, which is heavy to import


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
    extras.require("coterie certs", "flower", ("cryptography",))
    from coterie.engines.flower import certs as keys

    made = keys.make(folder, named(clients), host or [], days)
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
    names = options.words(clients)
    wrong = [n for n in names if not NAME.fullmatch(n)]
    if wrong or not names:
        raise ConfigError(
            f"{wrong[0] if wrong else clients!r} is no name for a client",
            code="C001",
            fix="letters, digits, dots, dashes: --clients berlin,lyon; or a number of clients",
        )
    return names


def serve(
    settings: Settings = None,
    certs: Annotated[
        Path | None, typer.Option(help="The server's folder of `coterie certs`.")
    ] = None,
    host: Annotated[str | None, typer.Option(help=f"The address it listens on, or {HOST}.")] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help=f"The port it listens on, or {PORT}.")
    ] = None,
    insecure: Insecure = False,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Go on with a run that stopped.", callback=options.a_run),
    ] = None,
    allow_change: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="With --resume: may differ.")
    ] = None,
    proxy: Annotated[
        str | None, typer.Option(help="nginx: print a configuration for it, and end.")
    ] = None,
    listen: Annotated[
        str, typer.Option(help="With --proxy: address and port of the proxy.")
    ] = "443",
    out: Out = None,
    allow_code: AllowCode = False,
    quiet: Quiet = False,
    json: JsonEvents = False,
) -> None:
    """Train an experiment with clients on other machines.

    They join with `coterie join`. Only the clients' interface can be reached from outside.
    """
    extras.require("coterie serve", "flower", extras.FLOWER)
    address = address_of(certs, host, port, insecure, resume)
    if proxy is not None:
        say.result(proxied(proxy, address, listen))
        return
    config, folder = asked(settings, resume, allow_change or [], out, allow_code)
    if not (json or quiet):
        invite(address)
    with watching(config.method, quiet=quiet, json=json) as shown:
        hear = shown if json or quiet else telling(shown)
        result = running.serve(config, folder, address, hear, resume=resume is not None)
    conclude(
        config.method,
        result,
        json,
        lambda rounds: running.served(folder, address, f"train.rounds={rounds}"),
    )


def address_of(
    certs: Path | None,
    host: str | None,
    port: int | None,
    insecure: bool,
    resume: Path | None = None,
) -> ServerAddress:
    """Where the server stands; one that would be open to everybody is refused.

    What is not said of a run that goes on is as when it was served last.
    """
    before = stood(resume) if resume else {}
    if certs is None and not insecure and "certs" in before:
        certs = Path(before["certs"]) if before["certs"] else None
        insecure = certs is None
    if certs is None and not insecure:
        raise ConfigError(
            "a server needs certificates",
            code="C053",
            fix="make them with `coterie certs DIR --clients NAMES` and give --certs DIR/server; "
            "--insecure tries it without, on this machine only",
        )
    from coterie.engines.flower.serving import ServerAddress

    address = ServerAddress(
        None if insecure else certs,
        host or before.get("host", HOST),
        port or before.get("port", PORT),
    )
    address.check()
    return address


def stood(folder: Path) -> Mapping[str, Any]:
    """Where and how the server of a run was served last; nothing if that is not known."""
    from coterie.runs.reading import RunReader

    events = RunReader(folder).events
    return next((e for e in reversed(events) if e["event"] == "serving"), {})


def asked(
    settings: list[str] | None,
    resume: Path | None,
    allow_change: list[str],
    out: Path | None,
    allow_code: bool,
) -> tuple[Config, Path]:
    """The experiment that is served, new or resumed, and the folder of its run."""
    from coterie.config import load
    from coterie.studies.remote import federation
    from coterie.studies.run import experiment

    file, given = options.sort(settings, {"engine.name": "flower"})
    if resume:
        config = federation.config_to_resume(resume, given, allow_change, allow_code=allow_code)
        return config, resume
    config = load(file, given, allow_code=allow_code)
    federation.refuse_few_shots(config)
    federation.refuse_attack(config)
    return config, out or experiment.fresh(config)


def invite(address: ServerAddress) -> None:
    """Say where the server listens, and what a client types to join it."""
    at = f"{address.host}:{address.port}"
    where = "localhost" if address.host in (HOST, "localhost") else "THIS-MACHINE"
    where += f":{address.port}" * (address.port != PORT)
    own = ["--insecure", "--name", "NAME"]
    if address.certs is not None:
        own = ["--certs", str(address.certs.parent / "clients" / "NAME")]
    say.label("serve", f"at {at}; a client joins with")
    say.label("", command("join", where, *own, "--data", "FOLDER"))


def telling(listen: Listener) -> Listener:
    """Also say who comes, who is missing and what was not accepted."""
    waited = ""

    def hear(event: Event) -> None:
        nonlocal waited
        what = event["event"]
        if what == "waiting":
            text = f"{event['clients']} of {event['of']} clients are there"
            if text != waited:  # it is heard again and again
                say.label("wait", text)
            waited = text
        elif what == "joined":
            again = " again" if event.get("again") else ""
            many = count(event["samples"], "sample")
            say.label("join", f"client {event['client']}{again}, {many}")
        elif what == "left":
            say.label("left", f"client {event['client']}")
        elif what in ("missing", "late", "unreached", "refused", "abandoned"):
            who = f"client {event['client']}" if "client" in event else event.get("node", "")
            say.label(what, f"{who} {event.get('why', '')}".strip())
        listen(event)

    return hear


def proxied(proxy: str, address: ServerAddress, listen: str) -> str:
    """The configuration of a reverse proxy."""
    from coterie.engines.flower import nginx

    if proxy != "nginx" or address.certs is None:
        raise ConfigError(
            "there is no configuration for that",
            code="C001",
            fix="`coterie serve --proxy nginx --certs DIR/server`",
        )
    return nginx.configuration(address.certs, address.port, listen)
