"""Flower: its simulation on Ray, one actor of one thread per core."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import torch
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import Tensor, nn

from bench import plain
from bench.contestant import Channel, versions
from bench.studying import Records, State, clustered, named, score
from bench.workloads import WORKLOADS, Array, Study, Workload

client = ClientApp()


@cache
def samples(name: str, i: int) -> tuple[Tensor, Tensor]:
    """The data of a client, kept by the actor that has seen it."""
    return plain.tensors(WORKLOADS[name].client(i))


@cache
def tests(name: str, i: int) -> tuple[Tensor, Tensor]:
    """The test data of a client."""
    study = WORKLOADS[name]
    assert isinstance(study, Study)
    return plain.tensors(study.test(i))


@cache
def network(name: str) -> nn.Module:
    """The actor's own copy of the network; of a study, all data are made with it."""
    torch.set_num_threads(1)
    workload = WORKLOADS[name]
    for i in range(workload.clients) if isinstance(workload, Study) else ():
        samples(name, i), tests(name, i)
    return workload.network()


def asked(message: Message, context: Context) -> tuple[dict[str, Any], int, nn.Module]:
    """What a client is told, which client it is, and the model it was sent."""
    config: dict[str, Any] = dict(message.content.config_records["config"])
    net = network(config["workload"])
    net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    return config, int(context.node_config["partition-id"]), net


@client.train()
def train(message: Message, context: Context) -> Message:
    """What a client does in a round."""
    config, i, net = asked(message, context)
    name, workload = config["workload"], WORKLOADS[config["workload"]]
    (x, y), order = samples(name, i), workload.order(config["round"], i)
    plain.train(net, x, y, workload, config["epochs"], order, config.get("steps", sys.maxsize))
    state = net.state_dict()
    if config.get("head"):  # the last layer is all that is wanted
        state = dict(list(state.items())[-2:])
    return Message(
        RecordDict(
            {
                "arrays": ArrayRecord(state),
                "metrics": MetricRecord({"num-examples": len(y)}),
            }
        ),
        reply_to=message,
    )


@client.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """How a client's test goes."""
    config, i, net = asked(message, context)
    right, loss = score(net, *tests(config["workload"], i))
    numbers = MetricRecord({"accuracy": right, "loss": loss})
    return Message(RecordDict({"metrics": numbers}), reply_to=message)


@client.query()
def query(message: Message, context: Context) -> Message:
    """Which client a node is."""
    which = MetricRecord({"client": int(context.node_config["partition-id"])})
    return Message(RecordDict({"metrics": which}), reply_to=message)


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


class FlowerStudy:
    """FedClust as one writes it in Flower, whose strategies have one model: with messages."""

    def __init__(self, study: Study, grid: Grid) -> None:
        self.study, self.grid, self.done, self.records = study, grid, 0, Records()
        self.models: list[State] = []
        while len(nodes := list(grid.get_node_ids())) < study.clients:
            time.sleep(0.1)
        wanted = (Message(RecordDict(), node, MessageType.QUERY) for node in nodes)
        self.nodes = {
            int(r.content.metric_records["metrics"]["client"]): r.metadata.src_node_id  # type: ignore[arg-type]
            for r in grid.send_and_receive(list(wanted))
        }
        self.clients = {node: i for i, node in self.nodes.items()}

    def ask(
        self, kind: str, models: Mapping[int, State], **config: int
    ) -> dict[int, tuple[State, MetricRecord]]:
        """What each client answers who is sent a model: arrays and numbers."""
        told = ConfigRecord({"workload": self.study.name, "round": self.done, **config})
        sent = {id(model): ArrayRecord(dict(model)) for model in models.values()}
        messages = [
            Message(RecordDict({"arrays": sent[id(model)], "config": told}), self.nodes[i], kind)
            for i, model in models.items()
        ]
        replies: Iterable[Message] = self.grid.send_and_receive(messages)
        found = {}
        for reply in replies:
            arrays = reply.content.array_records.get("arrays")
            state = arrays.to_torch_state_dict() if arrays else {}
            i = self.clients[reply.metadata.src_node_id]
            found[i] = state, reply.content.metric_records["metrics"]
        return {i: found[i] for i in models}

    def round(self, epochs: int) -> None:
        """Those drawn train what their cluster has; averages within each, tests of all."""
        if not self.models:
            self.group()
        cohort = self.study.cohort(self.done)
        mine = {i: self.models[self.labels[i]] for i in cohort}
        replies = self.ask(MessageType.TRAIN, mine, epochs=epochs)
        for c in range(self.study.groups):
            some = [replies[i] for i in cohort if self.labels[i] == c]
            if some:
                sizes = [int(numbers["num-examples"]) for _, numbers in some]  # type: ignore[arg-type]
                self.models[c] = plain.averaged([state for state, _ in some], sizes)
        self.done += 1
        self.test()

    def group(self) -> None:
        """Round 0: everybody trains, and those whose last layers are alike share a model."""
        start, steps, k = (
            self.study.network().state_dict(),
            self.study.grouping_steps,
            self.study.groups,
        )
        everybody = dict.fromkeys(range(self.study.clients), start)
        self.done = -1
        replies = self.ask(MessageType.TRAIN, everybody, epochs=steps, steps=steps, head=1)
        rows = torch.stack([plain.last_layer(state) for state, _ in replies.values()])
        self.labels, self.models = clustered(rows.double().numpy(), k), [start] * k
        self.done = 0
        self.test()

    def test(self) -> None:
        """Every client, and what is written of it."""
        models = {i: self.models[self.labels[i]] for i in range(self.study.clients)}
        numbers = [found for _, found in self.ask(MessageType.EVALUATE, models).values()]
        rows = [(float(n["accuracy"]), float(n["loss"])) for n in numbers]  # type: ignore[arg-type]
        self.records.add(self.done, rows, self.labels, self.models)

    def weights(self) -> list[Array]:
        """The models of all clusters."""
        return [t for model in self.models for t in named(model)]


def main(workload: Workload, channel: Channel) -> None:
    """Serve rounds from inside the server app."""
    cores = len(os.sched_getaffinity(0))
    server = ServerApp()

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        kind = FlowerStudy if isinstance(workload, Study) else Flower
        channel.serve(kind(workload, grid), versions=versions("flwr", "ray", "torch"))  # type: ignore[arg-type]

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
