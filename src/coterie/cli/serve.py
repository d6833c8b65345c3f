"""serve: the server of a real federation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli import running, say
from coterie.cli.progress import watching
from coterie.cli.train import Json, Quiet, conclude, sort
from coterie.core.errors import ConfigError
from coterie.core.events import Event, Listener

if TYPE_CHECKING:
    from coterie.config import Config
    from coterie.engines.flower.serving import ServerAddress

PORT = 9093  # as in engines.flower.serving, which is heavy to import


def serve(
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE] [KEY=VALUE]...", help="An experiment file, and settings."),
    ] = None,
    certs: Annotated[
        Path | None, typer.Option(help="The server's folder of `coterie certs`.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address it listens on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port it listens on.")] = PORT,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Without TLS and keys; this machine only.")
    ] = False,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Go on with a run that stopped.")
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
    out: Annotated[Path | None, typer.Option(help="The folder of the run.")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train an experiment with clients on other machines.

    They join with `coterie join`. Only the clients' interface can be reached from outside.
    """
    address = address_of(certs, host, port, insecure)
    if proxy is not None:
        say.result(proxied(proxy, address, listen))
        return
    config, folder = asked(settings or [], resume, allow_change or [], out)
    with watching(config.method, quiet=quiet, json=json) as shown:
        hear = shown if json or quiet else telling(shown)
        done = running.serve(config, folder, address, hear, resume=resume is not None)
    again = "coterie serve --resume {folder} train.rounds={rounds} ..."
    conclude(config.method, done, json, again)


def address_of(certs: Path | None, host: str, port: int, insecure: bool) -> ServerAddress:
    """Where the server stands; one that would be open to everybody is refused."""
    if certs is None and not insecure:
        raise ConfigError(
            "a server needs certificates",
            code="C053",
            fix="make them with coterie certs DIR and give --certs DIR/server; --insecure tries "
            "it without, on this machine only",
        )
    from coterie.engines.flower.serving import ServerAddress

    address = ServerAddress(None if insecure else certs, host, port)
    address.check()
    return address


def asked(
    settings: list[str], resume: Path | None, allow_change: list[str], out: Path | None
) -> tuple[Config, Path]:
    """The experiment that is served, new or resumed, and the folder of its run."""
    from coterie.config import load
    from coterie.studies import federation

    file, given = sort(settings)
    given.append(("engine.name", "flower"))
    if resume:
        return federation.config_to_resume(resume, given, allow_change), resume
    config = load(file, given)
    federation.refuse_newcomers(config)
    return config, out or running.fresh(config)


def telling(listen: Listener) -> Listener:
    """Also say who comes, who is missing and what was not accepted."""

    def hear(event: Event) -> None:
        what = event["event"]
        if what == "waiting":
            say.label("wait", f"{event['clients']} of {event['of']} clients are there")
        elif what == "joined":
            again = " again" if event.get("again") else ""
            say.label("join", f"client {event['client']}{again}, {event['samples']:,} samples")
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
            fix="coterie serve --proxy nginx --certs DIR/server",
        )
    return nginx.configuration(address.certs, address.port, listen)
