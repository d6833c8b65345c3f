"""Flower's programs, reached from inside our own process: being a run's server, being a client.

Flower has no public way to do either: it starts a process for each, with code from the message.
This does what its `flwr run`, `flwr-serverapp` and `flwr-clientapp` do, with the code that is
installed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from coterie.core.errors import QuorumError
from coterie.engines.flower import internals
from coterie.engines.flower.children import Child
from coterie.engines.flower.guard import HEADER, credential
from coterie.engines.flower.inbox import LEAST, Inbox

C = TypeVar("C", internals.RuntimeHttpClient, internals.ControlHttpClient)
BEAT = 5.0  # seconds between two signs of life
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


@dataclass(frozen=True)
class Endpoint:
    """A port of this machine on which a program of Flower's is reached, and the secret for it."""

    port: int
    secret: bytes
    ca: Path | None = None  # None: without TLS

    def connect(self, kind: type[C], *interceptors: Any) -> C:
        """A client of some interface. It does not try again by itself: we have deadlines."""
        ours = internals.RuntimeVersionHttpInterceptor(component_name="coterie")
        known = Credential(credential(self.secret))
        return kind.from_server_address(
            server_address=f"127.0.0.1:{self.port}",
            insecure=self.ca is None,
            root_certificates=self.ca.read_bytes() if self.ca else None,
            interceptors=[ours, known, *interceptors],
        )

    def executor(self) -> internals.RuntimeHttpClient:
        """Whoever may take tasks: it has to know the secret."""
        signed = internals.SuperExecAuthHttpInterceptor(
            master_secret=self.secret, protected_methods=frozenset({internals.ACQUIRE})
        )
        return self.connect(internals.RuntimeHttpClient, signed)

    def holder(self, token: str) -> internals.RuntimeHttpClient:
        """Whoever took a task, and has its token."""
        signed = internals.RuntimeTokenHttpInterceptor(token)
        return self.connect(internals.RuntimeHttpClient, signed)


@dataclass(frozen=True)
class Credential:
    """Shows the guard of a SuperLink with every request that it comes from us."""

    value: str

    def intercept(self, context: Any, call_next: Any) -> Any:
        """Add it to a request's head."""
        context.request.headers[HEADER] = self.value
        return call_next(context)


def wait_until_up(endpoint: Endpoint, child: Child, seconds: float = 60.0) -> None:
    """Until a program answers on its port."""
    end = time.monotonic() + seconds
    with endpoint.executor() as client:
        while True:
            child.check()
            try:
                client.AcquireTask(internals.AcquireTaskRequest())
                return
            except httpx.TransportError:
                if time.monotonic() > end or child.deaths > 3:
                    raise child.failed("does not start") from None
            time.sleep(0.1)


@contextmanager
def beating(client: internals.RuntimeHttpClient) -> Iterator[None]:
    """Say every few seconds that a task is being worked on."""
    over = threading.Event()

    def beat() -> None:
        while not over.is_set():
            with suppress(httpx.HTTPError):  # it may be back at the next beat
                client.SendTaskHeartbeat(internals.SendTaskHeartbeatRequest())
            over.wait(BEAT)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def register(endpoint: Endpoint, keys: Mapping[str, bytes]) -> dict[int, str]:
    """Let in these clients and nobody else; node -> name."""
    with endpoint.connect(internals.ControlHttpClient) as control:
        there = {
            n.public_key: n for n in control.ListNodes(internals.ListNodesRequest()).nodes_info
        }
        for key, node in there.items():
            if key not in keys.values() and node.status != "unregistered":
                control.UnregisterNode(internals.UnregisterNodeRequest(node_id=node.node_id))
        for name, key in keys.items():
            if key not in there or there[key].status == "unregistered":
                control.RegisterNode(internals.RegisterNodeRequest(public_key=key, name=name))
        owners = {key: name for name, key in keys.items()}
        found = control.ListNodes(internals.ListNodesRequest()).nodes_info
        return {n.node_id: owners[n.public_key] for n in found if n.public_key in owners}


@contextmanager
def server_run(endpoint: Endpoint, seconds: float) -> Iterator[Reached]:
    """Be the server of a new run: its grid, kept alive until the end.

    A SuperLink that does not answer is waited for so many seconds.
    """
    fab, _ = internals.build_fab_from_files({"pyproject.toml": APP})
    with endpoint.connect(internals.ControlHttpClient) as control:
        run_id = control.StartRun(internals.StartRunRequest(fab=internals.Fab(content=fab))).run_id
    with endpoint.executor() as executor:
        token = acquired(executor, run_id)
    grid = internals.HttpGrid(
        f"127.0.0.1:{endpoint.port}",
        insecure=endpoint.ca is None,
        root_certificates=endpoint.ca.read_bytes() if endpoint.ca else None,
        token=token,
    )
    internals.speak_through(grid, endpoint.holder(token), seconds)  # it may be started again
    status = internals.SubStatus.FAILED
    with endpoint.holder(token) as holder, beating(holder):
        taken = holder.PullTaskInput(internals.PullTaskInputRequest())
        context = internals.context_from_proto(taken.context)
        internals.identify(taken.task_id, taken.run.run_id, context.node_id)
        grid.set_run(internals.run_from_proto(taken.run))
        try:
            yield Reached(grid, Inbox(grid._runtime_client, grid.run.run_id))
            status = internals.SubStatus.COMPLETED
        finally:
            with suppress(httpx.HTTPError):  # the SuperLink is gone: nobody is left to be told
                holder.PushTaskOutput(
                    internals.PushTaskOutputRequest(sub_status=status, details="")
                )
            grid.close()


class Reached:
    """The part of Flower's grid that messages go through; its loss is an error of ours."""

    def __init__(self, grid: internals.HttpGrid, inbox: Inbox) -> None:
        self.grid, self.inbox = grid, inbox
        self.refusals: Callable[[], Iterable[tuple[str, str]]] = tuple  # who was refused, and why
        self.largest = LEAST  # bytes of an answer: one that has more is not fetched

    def get_nodes(self) -> Iterable[Any]:
        """The nodes that are there, with their ids and the times at which they came."""
        with reaching():
            return self.grid.get_nodes()

    def push_messages(self, messages: list[Message]) -> Iterable[str | None]:
        """The id of each message; None for each if the SuperLink died and forgot the rest."""
        try:
            with reaching():
                return self.grid.push_messages(messages)
        except internals.ObjectPushError:
            return [None for _ in messages]

    def pull_messages(self, message_ids: list[str]) -> Iterable[Message]:
        """The answers to these messages that have come."""
        with reaching():
            return self.inbox.pull(message_ids, self.largest)


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


def acquired(executor: internals.RuntimeHttpClient, run_id: int, seconds: float = 30.0) -> str:
    """The token of a run's server; what runs left behind that are dead is taken and dropped."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        got = executor.AcquireTask(
            internals.AcquireTaskRequest(supported_task_types=[internals.SERVER_TASK])
        )
        if got.HasField("task") and got.task.run_id == run_id:
            return str(got.token)
        if not got.HasField("task"):
            time.sleep(0.1)
    raise QuorumError(
        "the SuperLink gave no run to serve",
        code="Q001",
        why=f"nothing in {seconds:.0f} s; another server may be taking its runs",
    )


def answer_for_ever(
    endpoint: Endpoint,
    app: ClientApp,
    child: Child,
    poll: float = 0.25,
    seconds: float | None = None,
) -> None:
    """Answer every message of a SuperNode with the code that is installed here, never with what
    a message brings; until the SuperNode ends for good, or nothing came for so many seconds.

    A SuperNode deals with one message at a time. So a message that is not complete while there is
    a newer one will never be: its server was gone before it was sent.
    """
    last = time.monotonic()
    with endpoint.executor() as executor, ExitStack() as stack:
        taken: Taken | None = None
        while seconds is None or time.monotonic() - last < seconds:
            child.check()
            try:
                got = executor.AcquireTask(
                    internals.AcquireTaskRequest(supported_task_types=[internals.CLIENT_TASK])
                )
                if got.HasField("task") and got.token:
                    stack.close()
                    client = stack.enter_context(endpoint.holder(got.token))
                    stack.enter_context(beating(client))
                    taken = Taken(client)
                if taken and taken.answered(app):
                    stack.close()
                    taken, last = None, time.monotonic()
                    continue
            except (httpx.HTTPError, RuntimeError):
                stack.close()
                taken = None  # the SuperNode died or was started again: the message is lost
            time.sleep(poll)


@dataclass
class Taken:
    """A message that was taken from a SuperNode and has to be answered."""

    client: internals.RuntimeHttpClient
    context: Context | None = None
    tree: Any = None

    def answered(self, app: ClientApp) -> bool:
        """Answer it and say that it is done; False if it is not complete yet."""
        if self.context is None:
            given = self.client.PullTaskInput(internals.PullTaskInputRequest())
            internals.identify(given.task_id, given.run.run_id, given.context.node_id)
            self.context = internals.context_from_proto(given.context)
        if self.tree is None:
            found = self.client.PullMessages(internals.PullAppMessagesRequest())
            if not found.messages_list:
                return False
            self.tree = found.message_object_trees[0]
        node = internals.Node(node_id=self.context.node_id)
        pull = internals.make_pull_object_fn_protobuf(
            self.client.PullObject, node, self.context.run_id
        )
        confirm = internals.make_confirm_message_received_fn_protobuf(
            self.client.ConfirmMessageReceived, node, self.context.run_id
        )
        try:
            message = internals.pull_and_inflate_object_from_tree(
                self.tree, pull, confirm, return_type=Message, max_time=2.0, initial_backoff=0.2
            )
        except internals.ObjectPullError:
            return False
        internals.set_message_id(message, self.tree.object_id)
        internals.push_message(self.client, app(message, self.context), self.context)
        internals.push_task_output(self.client, self.context, internals.SubStatus.COMPLETED, "")
        return True
