"""All of Flower that is used below its public interface (flwr 1.41), and what is done to it.

Flower starts a process for every server and every message, with code that the message brings.
Being the server and answering messages inside our own process, with the code that is installed,
and reaching the programs on ports of their own, takes what is imported here and nothing else: the
public rest is `flwr.app`, `flwr.clientapp` and `flwr.serverapp`. A new version of Flower is a
change of this file, and a test tells which of these names it has lost.
"""
# ruff: noqa: F401  what is imported here is used from here

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

# What comes of a message that cannot be taken.
from flwr.app import Error, Metadata
from flwr.app.message import make_message

# A run needs a bundle of code, though ours holds none.
from flwr.cli.build import build_fab_from_files

# How large the pieces are in which arrays travel.
from flwr.common.constant import FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE as PIECE

# How a task ended, and the messages in which a task, its run and its context are told.
from flwr.common.constant import SUPERLINK_NODE_ID, TIMESTAMP_HEADER, SubStatus
from flwr.common.serde import context_from_proto, run_from_proto

# What is said to the SuperLink about runs and about clients that may take part.
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    RegisterNodeRequest,
    StartRunRequest,
    UnregisterNodeRequest,
)
from flwr.proto.fab_pb2 import Fab
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest
from flwr.proto.node_pb2 import Node

# What is said by whoever works on a task: it takes it, shows that it lives, and gives it back.
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)

# How clients sign their requests.
from flwr.supercore.constant import (
    FLEET_HTTP_PUBLIC_KEY_HEADER,
    FLEET_HTTP_SIGNATURE_HEADER,
    SYSTEM_MESSAGE_TYPE,
)
from flwr.supercore.constant import HEAD_BODY_DIVIDER as DIVIDER

# Whoever asks the SuperLink to start a run or to let a client in.
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.date import now

# Large arrays travel as objects of their own, beside the message that they belong to.
from flwr.supercore.inflatable.inflatable_object import (
    get_object_head_values_from_object_content,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectPushError,
    inflate_object_from_contents,
    pull_and_inflate_object_from_tree,
)

# Whoever works on tasks, and what signs its requests.
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature
from flwr.supercore.runtime import RuntimeHttpClient

# Messages are signed with the task that this process works on.
from flwr.supercore.task_identity import TaskIdentity

# The grid that a server is given, and how a client hands its answer over.
from flwr.superlink.grid import HttpGrid
from flwr.supernode.runtime.run_clientapp import push_message, push_task_output

ACQUIRE = "/flwr.proto.Runtime/AcquireTask"  # the one request that must be signed with the secret
KEY_HEADER = FLEET_HTTP_PUBLIC_KEY_HEADER.encode()
SIGNATURE_HEADER, TIME_HEADER = FLEET_HTTP_SIGNATURE_HEADER.encode(), TIMESTAMP_HEADER.encode()
SERVER_TASK, CLIENT_TASK = "flwr-serverapp", "flwr-clientapp"  # what a task can be


def identify(task_id: int, run_id: int, node_id: int) -> None:
    """Say which task this process works on."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = task_id, run_id, node_id


def speak_through(grid: HttpGrid, client: RuntimeHttpClient, seconds: float) -> None:
    """Let a grid use a client of ours, and wait so long for a SuperLink that does not answer."""
    grid._retry_invoker.max_time = seconds
    client._retry_invoker = grid._retry_invoker
    grid._client = client


def set_message_id(message: Any, message_id: str) -> None:
    """Give a message that was put together from its objects the id it was sent under."""
    message.metadata.__dict__["_message_id"] = message_id


def error_message(run_id: int, reply_to: str, code: int, reason: str) -> Any:
    """A message that stands for an answer that cannot be taken."""
    return make_message(
        metadata=Metadata(
            run_id=run_id,
            message_id="",
            src_node_id=SUPERLINK_NODE_ID,
            dst_node_id=SUPERLINK_NODE_ID,
            message_type=SYSTEM_MESSAGE_TYPE,
            group_id="",
            ttl=0,
            reply_to_message_id=reply_to,
            created_at=now().timestamp(),
        ),
        error=Error(code=code, reason=reason),
    )


def run_superlink(middleware: Any, **options: Any) -> None:
    """Flower's SuperLink, with every request passed through a middleware of ours."""
    from flwr.superlink import main
    from flwr.superlink.cli.flower_superlink import flower_superlink

    create = main.create_app

    def guarded(*args: Any, **keywords: Any) -> Any:
        app = create(*args, **keywords)
        app.add_middleware(middleware, **options)
        return app

    main.create_app = guarded
    flower_superlink()


def run_supernode(heartbeat_seconds: int, poll_seconds: float) -> None:
    """Flower's SuperNode, which shows that it lives and asks for work as often as we want it."""
    from flwr.supercore import heartbeat
    from flwr.supernode import fleet_http_connection, start_client_internal
    from flwr.supernode.cli.flower_supernode import flower_supernode

    for module in (heartbeat, fleet_http_connection):
        setattr(module, "HEARTBEAT_DEFAULT_INTERVAL", heartbeat_seconds)  # noqa: B010
    sleep = time.sleep
    often = SimpleNamespace(sleep=lambda seconds: sleep(min(seconds, poll_seconds)))
    setattr(start_client_internal, "time", often)  # noqa: B010
    flower_supernode()
