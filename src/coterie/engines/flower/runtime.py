"""Being the server of a Flower run inside our own process (flwr 1.41).

Flower has no public way to do that. This does what its `flwr run` and `flwr-serverapp` do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import httpx
from flwr.cli.build import build_fab_from_files
from flwr.common.constant import SubStatus
from flwr.common.serde import context_from_proto, run_from_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    RegisterNodeRequest,
    StartRunRequest,
    UnregisterNodeRequest,
)
from flwr.proto.fab_pb2 import Fab
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
)
from flwr.serverapp import Grid
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid

from coterie.core.errors import QuorumError
from coterie.engines.flower.connection import Line, beating

SERVER = "flwr-serverapp"
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


def register(line: Line, keys: Mapping[str, bytes]) -> dict[int, str]:
    """Let in these clients and nobody else; node -> name."""
    with line.connect(ControlHttpClient) as control:
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
def server_run(line: Line, patience: float) -> Iterator[Grid]:
    """Be the server of a new run: its grid, kept alive until the end."""
    fab, _ = build_fab_from_files({"pyproject.toml": APP})
    with line.connect(ControlHttpClient) as control:
        run_id = control.StartRun(StartRunRequest(fab=Fab(content=fab))).run_id
    with line.executor() as executor:
        token = acquired(executor, run_id)
    grid = HttpGrid(
        f"127.0.0.1:{line.port}",
        insecure=line.ca is None,
        root_certificates=line.ca.read_bytes() if line.ca else None,
        token=token,
    )
    grid._retry_invoker.max_time = patience  # a SuperLink that is started again is waited for
    status = SubStatus.FAILED
    with line.holder(token) as holder, beating(holder):
        taken = holder.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id = taken.task_id, taken.run.run_id
        TaskIdentity.node_id = context_from_proto(taken.context).node_id
        grid.set_run(run_from_proto(taken.run))
        try:
            yield Reached(grid)
            status = SubStatus.COMPLETED
        finally:
            with suppress(httpx.HTTPError):  # the SuperLink is gone: nobody is left to be told
                holder.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=""))
            grid.close()


class Reached(Grid):
    """A grid whose loss is an error of ours; everything else is passed on."""

    def __init__(self, grid: HttpGrid) -> None:
        self.grid = grid

    def _call(self, work: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        try:
            return work(*args, **keywords)
        except httpx.HTTPError as cause:
            raise QuorumError(
                f"the SuperLink cannot be reached: {cause}",
                code="Q001",
                fix="its log is in the run's folder; resume the run",
            ) from cause

    def set_run(self, run: Any) -> None:
        """As the grid's."""
        self.grid.set_run(run)

    @property
    def run(self) -> Any:
        """As the grid's."""
        return self.grid.run

    def create_message(self, *args: Any, **keywords: Any) -> Any:
        """As the grid's."""
        return self.grid.create_message(*args, **keywords)

    def get_node_ids(self) -> Any:
        """As the grid's."""
        return self._call(self.grid.get_node_ids)

    def get_nodes(self) -> Any:
        """As the grid's."""
        return self._call(self.grid.get_nodes)

    def push_messages(self, messages: Any) -> Any:
        """As the grid's; None for each if the SuperLink died half-way and forgot the rest."""
        try:
            return self._call(self.grid.push_messages, messages)
        except ObjectPushError:
            return [None for _ in messages]

    def pull_messages(self, message_ids: Any) -> Any:
        """As the grid's."""
        return self._call(self.grid.pull_messages, message_ids)

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
        """As the grid's."""
        return self._call(self.grid.send_and_receive, messages, timeout=timeout)


def acquired(executor: RuntimeHttpClient, run_id: int, seconds: float = 30.0) -> str:
    """The token of a run's server; what runs left behind that are dead is taken and dropped."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        got = executor.AcquireTask(AcquireTaskRequest(supported_task_types=[SERVER]))
        if got.HasField("task") and got.task.run_id == run_id:
            return str(got.token)
        if not got.HasField("task"):
            time.sleep(0.1)
    raise QuorumError(
        "the SuperLink gave no run to serve",
        code="Q001",
        why=f"nothing in {seconds:.0f} s; another server may be taking its runs",
    )
