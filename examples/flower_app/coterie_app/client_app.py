"""The client: its own data, or its share of the experiment's partition."""

from functools import cache
from pathlib import Path

from flwr.app import Context

from coterie.engines.flower.client import Host, client_app
from coterie.studies.remote.clients import OwnData, PartitionClient

EXPERIMENT = Path(__file__).with_name("experiment.toml")


@cache
def own(name: str, data: str) -> Host:
    return OwnData(name, data)


@cache
def share(index: int) -> Host:
    return PartitionClient(EXPERIMENT, index)


def host_of(context: Context) -> tuple[Host, Path]:
    """What the SuperNode was started with says whose data these are."""
    node = context.node_config
    state = Path(str(node.get("state", "~/.local/share/coterie/flower"))).expanduser()
    if "data" in node:
        return own(str(node["name"]), str(node["data"])), state
    return share(int(node["partition-id"])), state


app = client_app(host_of)
