"""Flower: its simulation on Ray, one actor of one thread per core."""

from __future__ import annotations

import os
import traceback
from functools import cache
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import Tensor, nn

from bench import plain
from bench.contestant import Channel, versions
from bench.workloads import WORKLOADS, Array, Workload

client = ClientApp()


@cache
def samples(name: str, i: int) -> tuple[Tensor, Tensor]:
    """The data of a client, kept by the actor that has seen it."""
    x, y = WORKLOADS[name].client(i)
    return torch.from_numpy(x), torch.from_numpy(y)


@cache
def network(name: str) -> nn.Module:
    """The actor's own copy of the network."""
    torch.set_num_threads(1)
    return WORKLOADS[name].network()


@client.train()
def train(message: Message, context: Context) -> Message:
    """What a client does in a round."""
    config: dict[str, Any] = dict(message.content.config_records["config"])
    name, i = config["workload"], int(context.node_config["partition-id"])
    net, (x, y), workload = network(name), samples(name, i), WORKLOADS[name]
    net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    plain.train(net, x, y, workload, config["epochs"], workload.order(config["round"], i))
    return Message(
        RecordDict(
            {
                "arrays": ArrayRecord(net.state_dict()),
                "metrics": MetricRecord({"num-examples": len(y)}),
            }
        ),
        reply_to=message,
    )


class Flower:
    """Flower's own FedAvg, one round at a time."""

    def __init__(self, workload: Workload, grid: Grid) -> None:
        self.workload, self.grid, self.done = workload, grid, 0
        self.arrays = ArrayRecord(workload.network().state_dict())
        self.strategy = FedAvg(
            fraction_train=1.0,
            fraction_evaluate=0.0,
            min_train_nodes=workload.clients,
            min_available_nodes=workload.clients,
        )

    def round(self, epochs: int) -> None:
        """Send, train, receive, average."""
        config = ConfigRecord(
            {"workload": self.workload.name, "epochs": epochs, "round": self.done}
        )
        result = self.strategy.start(self.grid, self.arrays, num_rounds=1, train_config=config)
        assert result.arrays is not None
        self.arrays = result.arrays
        self.done += 1

    def weights(self) -> list[Array]:
        """The global model."""
        return [t.numpy() for t in self.arrays.to_torch_state_dict().values()]


def main(workload: Workload, channel: Channel) -> None:
    """Serve rounds from inside the server app."""
    cores = len(os.sched_getaffinity(0))
    server = ServerApp()

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        channel.serve(Flower(workload, grid), versions=versions("flwr", "ray", "torch"))

    try:
        run_simulation(
            server,
            client,
            num_supernodes=workload.clients,
            backend_config={
                "init_args": {"address": "local", "num_cpus": cores},  # a cluster of its own
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            },
        )
    except BaseException:
        traceback.print_exc()
        os._exit(1)  # without its workers the server app would wait for replies for ever
