"""The command of a client of a real federation: join, and what it says while it takes part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli import say
from coterie.cli.options import Insecure
from coterie.core import extras
from coterie.core.errors import AccessError, ConfigError
from coterie.core.events import Event

if TYPE_CHECKING:
    from coterie.studies.remote.clients import OwnData, PartitionClient

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
    insecure: Insecure = False,
    leave_after: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Leave when nothing came for so long.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say only what went wrong.")] = False,
) -> None:
    """Take part in a federation with data that stay here.

    It answers until it is stopped (Ctrl-C), and comes back by itself after the server was away.
    The model that it uses is kept in model.safetensors, beside its private state.
    """
    extras.require("coterie join", "flower", extras.FLOWER)
    server_may_be_joined(server, certs, insecure)
    from coterie.engines.flower import serving
    from coterie.tasks import wire

    for module in trust or []:
        wire.trust(module)
    known = serving.expect(certs / "name").read_text().strip() if certs and not insecure else name
    host = host_of(known, data, client, partition_from, trust or [])
    if certs and not insecure:
        its_own_key(known, host.name, certs)
    home = (state or HOME / host.name).expanduser()
    host.model = home / "model.safetensors"
    if not quiet:
        say.label("join", f"client {host.name} at {server}; private state in {home}")
    serving.joining(
        server,
        host,
        home,
        certs=None if insecure else certs,
        seconds=leave_after,
        away=lambda: say.label("wait", f"nobody answers at {server} yet"),
        tell=faults if quiet else Taking(),
    )


class Taking:
    """Says what a client is asked, how it does and where its model is, as it takes part."""

    def __init__(self) -> None:
        self.model = ""  # where it is, once that was said

    def __call__(self, event: Event) -> None:
        """Hear one event of the client's side."""
        faults(event)
        what = event["event"]
        if what == "hello":
            say.label("link", "connected: the server knows this client, and asks when it is needed")
        elif what == "answered":
            self.answered(event)
        elif what == "bye":
            say.label("over", "the run is done; waiting for the next, Ctrl-C ends")
            self.say_model(self.model)

    def answered(self, event: Event) -> None:
        """One line for a question that was answered."""
        from coterie.report.charts.cost import task_words

        if event["purpose"] == "train":
            told = f"{task_words(event['task'])}, {say.seconds(event['seconds'])}"
            say.label("task", f"round {event['round']}: {told}")
            return
        accuracy = say.percent(event.get("accuracy"))
        say.label("test", f"round {event['round']}: own accuracy {accuracy}")
        if "model" in event and not self.model:
            self.model = event["model"]
            self.say_model(self.model)

    def say_model(self, path: str) -> None:
        """Where the model is, and how it is used."""
        if path:
            say.label("model", f'{path}\nin Python: coterie.load_model("{path}").predict(x)')


def faults(event: Event) -> None:
    """Say what went wrong on the client's side."""
    if event["event"] == "failed":
        say.label("failed", f"round {event['round']}: {event['why']}")
    elif "unsaved" in event:
        say.label("failed", f"the model could not be kept: {event['unsaved']}")


def its_own_key(known: str | None, name: str, certs: Path) -> None:
    """Refuse a client with another's key: no server would let it in."""
    if known != name:
        raise AccessError(
            f"the key in {certs} was made for client {known}, and this is client {name}",
            code="A001",
            fix=f"give --certs with the folder of client {name}",
        )


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
) -> OwnData | PartitionClient:
    """Whose data this client brings: all of its own, or those of one client of a partition."""
    from coterie.studies.remote.clients import OwnData, PartitionClient

    if (client is None) != (partition_from is None):
        raise ConfigError(
            "--client and --partition-from belong together",
            code="C001",
            fix="give both, or none to use all of --data",
        )
    if client is not None and partition_from is not None:
        return PartitionClient(partition_from, client, data, allow_code=bool(trust))
    if not name:
        raise ConfigError("a client needs a name", code="C001", fix="give --name")
    return OwnData(name, data, trust)
