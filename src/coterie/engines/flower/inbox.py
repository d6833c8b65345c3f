"""Answers fetched from the SuperLink: none further than it may be large, and none waited for.

An answer is a tree of objects, and says how large it is only when all of them are there. So they
are counted as they come, as they are and as they would be put together, where an array may name
one piece many times.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message

from coterie.engines.flower import internals
from coterie.engines.flower.validate import NAMES, RefusedError

LEAST = 1 << 22  # bytes that every answer may have: an introduction names all classes
HEADS = 1 << 20  # bytes of an object that holds no numbers but says what they are
REFUSED, LOST = 1001, 1002  # codes of errors, beside Flower's own
PATIENCE = 600.0  # seconds in which what was announced must have come


class LostError(Exception):
    """An answer that was announced and will not come; its client may be asked again."""


@dataclass
class Arrival:
    """An answer that was announced, as far as it has come."""

    id: str
    reply_to: str
    missing: list[str]  # objects, last first
    since: float
    found: dict[str, bytes] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many bytes of it have come."""
        return sum(map(len, self.found.values()))


class Inbox:
    """What came for a run, through a client of the SuperLink's."""

    def __init__(
        self,
        client: internals.RuntimeHttpClient,
        run_id: int,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client, self.run_id, self.now = client, run_id, now
        self.node = internals.Node(node_id=internals.SUPERLINK_NODE_ID)
        self.arriving: list[Arrival] = []

    def pull(self, ids: Iterable[str], largest: int) -> list[Message]:
        """Answers to these messages that are there, each of at most so many bytes; one that is
        refused is a message with an error. What is still being sent is returned another time."""
        request = internals.PullAppMessagesRequest(message_ids=ids)
        got = self.client.PullMessages(request)
        for head, tree in zip(got.messages_list, got.message_object_trees, strict=True):
            objects = dict.fromkeys(node.object_id for node in internals.iterate_object_tree(tree))
            answers = head.metadata.reply_to_message_id
            arrival = Arrival(head.metadata.message_id, answers, [*objects], self.now())
            self.arriving.append(arrival)
        there = []
        for arrival in [*self.arriving]:
            try:
                message = self.complete(arrival, largest)
            except (RefusedError, LostError) as fault:
                code = REFUSED if isinstance(fault, RefusedError) else LOST
                told = arrival.reply_to, code, str(fault)
                message = internals.error_message(self.run_id, *told)
            if message is not None:
                self.arriving.remove(arrival)
                self.forget(arrival)
                there.append(message)
        return there

    def complete(self, arrival: Arrival, largest: int) -> Message | None:
        """The answer, if all of it is there."""
        most = 4 + 2 * NAMES + largest // internals.PIECE + 1
        if len(arrival.missing) + len(arrival.found) > most:
            raise RefusedError(f"it is in {len(arrival.missing)} parts, at most {most} are taken")
        while arrival.missing:
            part = self.part(arrival.missing[-1])
            if part is None:
                if self.now() - arrival.since < PATIENCE:
                    return None
                raise LostError(f"it was announced and did not come in {PATIENCE:.0f} s")
            arrival.found[arrival.missing.pop()] = part
            if arrival.size > largest:
                raise too_large(largest)
        return put_together(arrival, largest)

    def part(self, object_id: str) -> bytes | None:
        """One object; None if it is not there yet."""
        got = self.client.PullObject(
            internals.PullObjectRequest(node=self.node, run_id=self.run_id, object_id=object_id)
        )
        if not got.object_found:
            raise LostError("a part of it was announced and never came")
        return bytes(got.object_content) if got.object_available else None

    def forget(self, arrival: Arrival) -> None:
        """Let the SuperLink throw an answer away."""
        self.client.ConfirmMessageReceived(
            internals.ConfirmMessageReceivedRequest(
                node=self.node, run_id=self.run_id, message_object_id=arrival.id
            )
        )


def put_together(arrival: Arrival, largest: int) -> Message:
    """The message that its objects are, if it is not larger than they are."""
    try:
        if inflated(arrival.found) > largest:
            raise too_large(largest)
        message = internals.inflate_object_from_contents(arrival.id, arrival.found)
        if not isinstance(message, Message) or not message.metadata.reply_to_message_id:
            raise RefusedError("it is no answer")
        same = message.metadata.reply_to_message_id == arrival.reply_to
    except RefusedError:
        raise
    except Exception as cause:  # whatever a parser makes of bytes from outside
        raise RefusedError("it cannot be put together") from cause
    if not same:
        raise RefusedError("it is announced as the answer to another question")
    internals.set_message_id(message, arrival.id)
    return message


def inflated(found: Mapping[str, bytes]) -> int:
    """How many bytes the arrays among these objects have, with every piece as often as named."""
    heads = {i: internals.get_object_head_values_from_object_content(x) for i, x in found.items()}
    total = 0
    for key, (kind, children, _) in heads.items():
        if kind not in ("ArrayChunk", "ConfigRecord") and len(found[key]) > HEADS:
            raise RefusedError(f"the head of its {kind:.40} has {len(found[key]):,} bytes")
        if kind == "Array":
            named: Any = json.loads(found[key].partition(internals.DIVIDER)[2])["arraychunk_ids"]
            pieces = [children[i] for i in named]
            if any(heads[piece][0] != "ArrayChunk" for piece in pieces):
                raise RefusedError("a piece of its array is none")
            total += sum(len(found[piece]) for piece in pieces)
    return total


def too_large(largest: int) -> RefusedError:
    """The fault of an answer that is too large."""
    return RefusedError(f"it is larger than the {largest:,} bytes that its answer may have")
