"""The one place that reaches below Flower's public interface, made for flwr 1.41.

Flower has no public way to be a server inside one's own process, nor to answer messages without a
process for each. This does what its own `flwr run`, `flwr-serverapp` and `flwr-clientapp` do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from flwr.cli.build import build_fab_from_files
from flwr.clientapp import ClientApp
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
    SendTaskHeartbeatRequest,
)
from flwr.serverapp import Grid
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid
from flwr.supernode.runtime.run_clientapp import (
    pull_task_input,
    push_message,
    push_task_output,
)

from coterie.engine.flower.children import Child
from coterie.errors import QuorumError

ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
SERVER, CLIENT = "flwr-serverapp", "flwr-clientapp"
BEAT = 5.0
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
serverapp = "coterie.engine.flower:server"
clientapp = "coterie.engine.flower:client"
[tool.flwr.app.config]
"""


@dataclass(frozen=True)
class Line:
    """How an interface on this machine is reached."""

    port: int
    secret: bytes
    ca: Path | None = None  # None: without TLS

    def connect(self, kind: Any, *interceptors: Any) -> Any:
        """A client of some interface. It does not try again by itself: we have deadlines."""
        return kind.from_server_address(
            server_address=f"127.0.0.1:{self.port}",
            insecure=self.ca is None,
            root_certificates=self.ca.read_bytes() if self.ca else None,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="coterie"), *interceptors],
        )

    def executor(self) -> RuntimeHttpClient:
        """Whoever may take tasks: it has to know the secret."""
        signed = SuperExecAuthHttpInterceptor(
            master_secret=self.secret, protected_methods=frozenset({ACQUIRE})
        )
        client: RuntimeHttpClient = self.connect(RuntimeHttpClient, signed)
        return client

    def holder(self, token: str) -> RuntimeHttpClient:
        """Whoever took a task, and has its token."""
        client: RuntimeHttpClient = self.connect(
            RuntimeHttpClient, RuntimeTokenHttpInterceptor(token)
        )
        return client


def wait_until_up(line: Line, child: Child, seconds: float = 60.0) -> None:
    """Until a program answers on its port."""
    end = time.monotonic() + seconds
    with line.executor() as client:
        while True:
            child.check()
            try:
                client.AcquireTask(AcquireTaskRequest())
                return
            except httpx.TransportError:
                if time.monotonic() > end or child.deaths > 3:
                    raise child.failed("does not start") from None
            time.sleep(0.1)


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
        """As the grid's."""
        return self._call(self.grid.push_messages, messages)

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


@contextmanager
def beating(client: RuntimeHttpClient) -> Iterator[None]:
    """Say every few seconds that a task is being worked on."""
    over = threading.Event()

    def beat() -> None:
        while not over.is_set():
            with suppress(httpx.HTTPError):  # it may be back at the next beat
                client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
            over.wait(BEAT)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def answer_for_ever(
    line: Line, app: ClientApp, child: Child, poll: float = 0.25, seconds: float | None = None
) -> None:
    """Answer every message of a SuperNode with the code that is installed here, never with what
    a message brings; until the SuperNode ends for good, or nothing came for so many seconds."""
    last = time.monotonic()
    with line.executor() as executor:
        while seconds is None or time.monotonic() - last < seconds:
            child.check()
            try:
                got = executor.AcquireTask(AcquireTaskRequest(supported_task_types=[CLIENT]))
                if got.HasField("task") and got.token:
                    answer(line, app, got.token)
                    last = time.monotonic()
                    continue
            except (httpx.HTTPError, RuntimeError):
                pass  # the SuperNode died or was started again: the message is lost, not we
            time.sleep(poll)


def answer(line: Line, app: ClientApp, token: str) -> None:
    """Take one message, answer it, and say that it is done."""
    with line.holder(token) as client, beating(client):
        message, context, _, _ = pull_task_input(client)
        push_message(client, app(message, context), context)
        push_task_output(client, context, SubStatus.COMPLETED, "")
