"""serve: the server of a real federation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from coterie.cli import running, say
from coterie.cli.progress import watching
from coterie.cli.running import Clock, Done, Event, Listener
from coterie.cli.train import Json, Quiet, closing, sort, table
from coterie.core.errors import ConfigError

PORT = 9093  # as in engine.flower.serving, which is heavy to import


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
    if certs is None and not insecure:
        raise ConfigError(
            "a server needs certificates",
            code="C053",
            fix="make them with coterie certs DIR and give --certs DIR/server; --insecure tries "
            "it without, on this machine only",
        )
    from coterie.engines.flower.serving import ServerAddress

    stand = ServerAddress(None if insecure else certs, host, port)
    stand.check()
    if proxy is not None:
        say.result(proxied(proxy, stand, listen))
        return
    from coterie.config import load
    from coterie.studies import experiment, federation

    file, given = sort(settings or [])
    given.append(("engine.name", "flower"))
    if resume:
        config, folder = federation.resumed(resume, given, allow_change or ()), resume
    else:
        config = load(file, given)
        folder = out or experiment.fresh(config)
    running._enter(folder)
    with watching(config.method, quiet=quiet, json=json) as listen_:
        clock = Clock(listen_ if json or quiet else telling(listen_))
        result = run(config, folder, stand, clock, resume is not None)
    running._leave()
    done = Done(result, clock.seconds)
    if json:
        say.line(closing(config.method, done))
        return
    say.result(table({config.method: done}))
    say.label("records", f"{folder}  (metrics.csv, clusters.csv, summary.json)")
    more = f"train.rounds={2 * config.train.rounds}"
    say.label("next", f"coterie serve --resume {folder} {more} ...    train on")


def run(config: Any, folder: Path, stand: Any, tell: Listener, resume: bool) -> Any:
    """Serve one run from its first round or its last."""
    from coterie.engines.flower.serving import serving
    from coterie.studies import federation

    with serving(stand, folder / "flower") as (grid, registered, check):
        return federation.conduct(
            grid,
            config,
            folder,
            tell,
            resume=resume,
            names=stand.names,
            registered=registered,
            check=check,
        )


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


def proxied(proxy: str, stand: Any, listen: str) -> str:
    """The configuration of a reverse proxy."""
    from coterie.engines.flower import nginx

    if proxy != "nginx" or stand.certs is None:
        raise ConfigError(
            "there is no configuration for that",
            code="C001",
            fix="coterie serve --proxy nginx --certs DIR/server",
        )
    return nginx.configuration(stand.certs, stand.port, listen)
