"""Being the server of a Flower run inside our own process.

Flower has no public way to do that. This does what its `flwr run` and `flwr-serverapp` do.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import httpx

from coterie.core.errors import QuorumError
from coterie.engines.flower.connection import Endpoint, beating
from coterie.engines.flower.exchange import Grid
from coterie.engines.flower.internals import (
    SERVER_TASK,
    AcquireTaskRequest,
    ControlHttpClient,
    Fab,
    HttpGrid,
    ListNodesRequest,
    ObjectPushError,
    PullTaskInputRequest,
    PushTaskOutputRequest,
    RegisterNodeRequest,
    RuntimeHttpClient,
    StartRunRequest,
    SubStatus,
    UnregisterNodeRequest,
    build_fab_from_files,
    context_from_proto,
    identify,
    keep_trying,
    run_from_proto,
)

APP = b"""
[project]
name = "coterie"
version = "1.0.0"
description = "Answered by what is installed; this bundle holds no code."
license = "Apache-2.0"
dependencies = ["flwr>=1.41,<1.42"]
[tool.flwr.app]
publisher = "coterie"
[tool.flwr.app.components]
serverapp = "coterie.engines.flower:server"
clientapp = "coterie.engines.flower:client"
[tool.flwr.app.config]
"""


def register(endpoint: Endpoint, keys: Mapping[str, bytes]) -> dict[int, str]:
    """Let in these clients and nobody else; node -> name."""
    with endpoint.connect(ControlHttpClient) as control:
        there = {n.public_key: n for n in control.ListNodes(ListNodesRequest()).nodes_info}
        for key, node in there.items():
            if key not in keys.values() and node.status != "unregistered":
                control.UnregisterNode(UnregisterNodeRequest(node_id=node.node_id))
        for name, key in keys.items():
            if key not in there or there[key].status == "unregistered":
                control.RegisterNode(RegisterNodeRequest(public_key=key, name=name))
        owners = {key: name for name, key in keys.items()}
        found = control.ListNodes(ListNodesRequest()).nodes_info
        return {n.node_id: owners[n.public_key] for n in found if n.public_key in owners}


@contextmanager
def server_run(endpoint: Endpoint, seconds: float) -> Iterator[Grid]:
    """Be the server of a new run: its grid, kept alive until the end.

    A SuperLink that does not answer is waited for so many seconds.
    """
    fab, _ = build_fab_from_files({"pyproject.toml": APP})
    with endpoint.connect(ControlHttpClient) as control:
        run_id = control.StartRun(StartRunRequest(fab=Fab(content=fab))).run_id
    with endpoint.executor() as executor:
        token = acquired(executor, run_id)
    grid = HttpGrid(
        f"127.0.0.1:{endpoint.port}",
        insecure=endpoint.ca is None,
        root_certificates=endpoint.ca.read_bytes() if endpoint.ca else None,
        token=token,
    )
    keep_trying(grid, seconds)  # it may be being started again
    status = SubStatus.FAILED
    with endpoint.holder(token) as holder, beating(holder):
        taken = holder.PullTaskInput(PullTaskInputRequest())
        context = context_from_proto(taken.context)
        identify(taken.task_id, taken.run.run_id, context.node_id)
        grid.set_run(run_from_proto(taken.run))
        try:
            yield Reached(grid)
            status = SubStatus.COMPLETED
        finally:
            with suppress(httpx.HTTPError):  # the SuperLink is gone: nobody is left to be told
                holder.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=""))
            grid.close()


class Reached:
    """A grid whose loss is an error of ours."""

    def __init__(self, grid: HttpGrid) -> None:
        self.grid = grid

    def get_nodes(self) -> Any:
        """The nodes that are there."""
        with reaching():
            return self.grid.get_nodes()

    def push_messages(self, messages: Any) -> Any:
        """The id of each message; None for each if the SuperLink died and forgot the rest."""
        try:
            with reaching():
                return self.grid.push_messages(messages)
        except ObjectPushError:
            return [None for _ in messages]

    def pull_messages(self, message_ids: Any) -> Any:
        """The answers to these messages that have come."""
        with reaching():
            return self.grid.pull_messages(message_ids)


@contextmanager
def reaching() -> Iterator[None]:
    """A SuperLink that is gone for good, as an error of ours."""
    try:
        yield
    except httpx.HTTPError as cause:
        raise QuorumError(
            f"the SuperLink cannot be reached: {cause}",
            code="Q001",
            fix="its log is in the run's folder; resume the run",
        ) from cause


def acquired(executor: RuntimeHttpClient, run_id: int, seconds: float = 30.0) -> str:
    """The token of a run's server; what runs left behind that are dead is taken and dropped."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        got = executor.AcquireTask(AcquireTaskRequest(supported_task_types=[SERVER_TASK]))
        if got.HasField("task") and got.task.run_id == run_id:
            return str(got.token)
        if not got.HasField("task"):
            time.sleep(0.1)
    raise QuorumError(
        "the SuperLink gave no run to serve",
        code="Q001",
        why=f"nothing in {seconds:.0f} s; another server may be taking its runs",
    )
