"""join: a client of a real federation."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli import say
from coterie.core.errors import ConfigError

if TYPE_CHECKING:
    from coterie.engines.flower.client import Host

HOME = Path("~/.local/share/coterie/clients")


def join(
    server: Annotated[str, typer.Argument(help="The server, as host or host:port.")],
    data: Annotated[str, typer.Option(help="This client's data: a name, file or folder.")],
    certs: Annotated[
        Path | None, typer.Option(help="This client's folder of `coterie certs`.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="This client's name; with --certs it is known.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option(help="Where it keeps what is private: its own models.")
    ] = None,
    client: Annotated[
        int | None, typer.Option(help="Be this client of a partition, to try things out.")
    ] = None,
    partition_from: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --client: whose partition.")
    ] = None,
    trust: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE", help="Installed code of yours that the server may name."),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Without TLS and keys; this machine only.")
    ] = False,
    leave_after: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Leave when nothing came for so long.")
    ] = None,
) -> None:
    """Take part in a federation with data that stay here.

    It answers until it is stopped (Ctrl-C), and comes back by itself after the server was away.
    """
    server_may_be_joined(server, certs, insecure)
    from coterie.engines.flower import serving

    for module in trust or []:
        import_module(module)
    known = serving.expect(certs / "name").read_text().strip() if certs and not insecure else name
    host = host_of(known, data, client, partition_from, trust or [])
    home = (state or HOME / host.name).expanduser()
    say.label("join", f"client {host.name} at {server}; private state in {home}")
    serving.joining(server, host, home, certs=None if insecure else certs, seconds=leave_after)


def server_may_be_joined(server: str, certs: Path | None, insecure: bool) -> None:
    """Refuse to join without a key, and without TLS where others could read what crosses."""
    if certs is None and not insecure:
        raise ConfigError(
            "a client needs the key that was made for it",
            code="C053",
            fix="give --certs with the folder from the federation's server; --insecure tries it "
            "without, on this machine only",
        )
    from coterie.engines.flower.serving import loopback

    if insecure and not loopback(server.rsplit(":", 1)[0]):
        raise ConfigError(
            f"{server} is another machine, and without TLS everybody could read what crosses",
            code="C053",
            fix="give --certs with the folder from the federation's server",
        )


def host_of(
    name: str | None, data: str, client: int | None, partition_from: Path | None, trust: list[str]
) -> Host:
    """Whose data this client brings: all of its own, or those of one client of a partition."""
    from coterie.studies.remote_clients import OwnData, PartitionClient

    if (client is None) != (partition_from is None):
        raise ConfigError(
            "--client and --partition-from belong together",
            code="C001",
            fix="give both, or none to use all of --data",
        )
    if client is not None and partition_from is not None:
        return PartitionClient(partition_from, client, data)
    if not name:
        raise ConfigError("a client needs a name", code="C001", fix="give --name")
    return OwnData(name, data, trust)
