"""Answering a SuperNode's messages inside our own process.

Flower has no public way to do that: it starts a process for each, with code from the message. This
does what its `flwr-clientapp` does, with the code that is installed.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any, Self

import httpx
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from coterie.engines.flower.children import Child
from coterie.engines.flower.connection import Endpoint, beating
from coterie.engines.flower.internals import (
    CLIENT_TASK,
    AcquireTaskRequest,
    Node,
    ObjectPullError,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    SubStatus,
    context_from_proto,
    identify,
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    pull_and_inflate_object_from_tree,
    push_message,
    push_task_output,
    set_message_id,
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
                got = executor.AcquireTask(AcquireTaskRequest(supported_task_types=[CLIENT_TASK]))
                if got.HasField("task") and got.token:
                    stack.close()
                    taken = stack.enter_context(Taken(endpoint, got.token))
                if taken and taken.answered(app):
                    stack.close()
                    taken, last = None, time.monotonic()
                    continue
            except (httpx.HTTPError, RuntimeError):
                stack.close()
                taken = None  # the SuperNode died or was started again: the message is lost
            time.sleep(poll)


class Taken:
    """A message that was taken from a SuperNode and has to be answered."""

    def __init__(self, endpoint: Endpoint, token: str) -> None:
        self.client = endpoint.holder(token)
        self.beats = beating(self.client)
        self.context: Context | None = None
        self.tree: Any = None

    def __enter__(self) -> Self:
        self.beats.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.beats.__exit__(None, None, None)
        self.client.close()

    def answered(self, app: ClientApp) -> bool:
        """Answer it and say that it is done; False if it is not complete yet."""
        if self.context is None:
            given = self.client.PullTaskInput(PullTaskInputRequest())
            identify(given.task_id, given.run.run_id, given.context.node_id)
            self.context = context_from_proto(given.context)
        if self.tree is None:
            found = self.client.PullMessages(PullAppMessagesRequest())
            if not found.messages_list:
                return False
            self.tree = found.message_object_trees[0]
        node = Node(node_id=self.context.node_id)
        pull = make_pull_object_fn_protobuf(self.client.PullObject, node, self.context.run_id)
        confirm = make_confirm_message_received_fn_protobuf(
            self.client.ConfirmMessageReceived, node, self.context.run_id
        )
        try:
            message = pull_and_inflate_object_from_tree(
                self.tree, pull, confirm, return_type=Message, max_time=2.0, initial_backoff=0.2
            )
        except ObjectPullError:
            return False
        set_message_id(message, self.tree.object_id)
        push_message(self.client, app(message, self.context), self.context)
        push_task_output(self.client, self.context, SubStatus.COMPLETED, "")
        return True
