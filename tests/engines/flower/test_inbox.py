"""An answer is fetched no further than it may be large, and nobody is waited for."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

from coterie.engines.flower.inbox import LOST, PATIENCE, REFUSED, Inbox
from coterie.engines.flower.internals import PIECE, identify


class Link:
    """A SuperLink with one answer; `make` gives an object when it is asked for."""

    def __init__(self, id: str, tree: Any, make: Callable[[str], bytes]) -> None:
        self.id, self.tree, self.make = id, tree, make
        self.fetched, self.confirmed, self.told = 0, 0, False
        self.held: set[str] = set()  # announced, not there yet
        self.lost: set[str] = set()

    def PullMessages(self, request: Any) -> Any:
        told, self.told = self.told, True
        head = SimpleNamespace(
            metadata=SimpleNamespace(message_id=self.id, reply_to_message_id="question")
        )
        heads, trees = ([], []) if told else ([head], [self.tree])
        return SimpleNamespace(messages_list=heads, message_object_trees=trees)

    def PullObject(self, request: Any) -> Any:
        there = request.object_id not in self.held
        content = self.make(request.object_id) if there else b""
        self.fetched += len(content)
        found = request.object_id not in self.lost
        return SimpleNamespace(object_found=found, object_available=there, object_content=content)

    def ConfirmMessageReceived(self, request: Any) -> None:
        self.confirmed += 1


def linked(message: Message) -> Link:
    identify(1, 1, 1)
    message.metadata.__dict__["_message_id"] = ""
    message.metadata.__dict__["_reply_to_message_id"] = "question"
    objects = {key: each.deflate() for key, each in get_all_nested_objects(message).items()}
    return Link(message.object_id, get_object_tree(message), objects.__getitem__)


def answer(values: np.ndarray[Any, Any]) -> Message:
    identify(1, 1, 1)
    record = ArrayRecord({"value": Array(values)})
    content = RecordDict({"answer": ConfigRecord({"error": ""}), "values": record})
    return Message(content, dst_node_id=1, message_type="train")


def pulled(link: Link, largest: int, now: Callable[[], float] = lambda: 0.0) -> list[Message]:
    return Inbox(link, 1, now).pull(["question"], largest)  # type: ignore[arg-type]


def test_an_answer_that_is_not_too_large_comes_whole() -> None:
    values = np.random.default_rng(0).normal(size=3 * PIECE // 8).astype(np.float64)
    link = linked(answer(values))
    (message,) = pulled(link, values.nbytes + 4096)
    assert (message.content.array_records["values"]["value"].numpy() == values).all()
    assert message.metadata.reply_to_message_id == "question"
    assert link.confirmed == 1


def refusal(message: Message) -> str:
    assert message.has_error()
    assert message.error.code == REFUSED
    assert message.metadata.reply_to_message_id == "question"
    return message.error.reason


@pytest.mark.row(17)
def test_an_answer_that_is_too_large_is_fetched_no_further() -> None:
    values = np.random.default_rng(0).normal(size=4 * PIECE // 8)
    link = linked(answer(values))
    (message,) = pulled(link, 10_000)
    assert "larger than the 10,000 bytes" in refusal(message)
    assert link.fetched < PIECE + 20_000
    assert link.confirmed == 1


@pytest.mark.row(17)
def test_one_piece_that_is_named_many_times_is_counted_many_times() -> None:
    link = linked(answer(np.zeros(PIECE // 8)))
    make, bombs = link.make, 0

    def bomb(key: str) -> bytes:
        nonlocal bombs
        content = make(key)
        if not content.startswith(b"Array "):
            return content
        bombs += 1
        head, _, body = content.partition(b"\0")
        told = json.loads(body)
        told["arraychunk_ids"] *= 1000
        body = json.dumps(told).encode()
        return head.rsplit(b" ", 1)[0] + f" {len(body)}\0".encode() + body

    link.make = bomb
    (message,) = pulled(link, 4 * PIECE)
    assert bombs == 1
    assert "larger than" in refusal(message)


@pytest.mark.row(17)
def test_an_answer_in_too_many_parts_is_not_fetched_at_all() -> None:
    leaves = [SimpleNamespace(object_id=f"{i}", children=[]) for i in range(70_000)]
    link = Link("root", SimpleNamespace(object_id="root", children=leaves), lambda key: b"")
    (message,) = pulled(link, 10_000)
    assert "70001 parts" in refusal(message)
    assert link.fetched == 0


@pytest.mark.parametrize(
    "content",
    [b"", b"Message  0\0", b"Array a,b 2\0{}", b"\xff \0", b"RecordDict x 0\0", b"Q  0\0"],
)
def test_what_cannot_be_put_together_is_refused(content: bytes) -> None:
    link = linked(answer(np.zeros(3)))
    link.make = lambda key: content
    (message,) = pulled(link, 10_000)
    assert refusal(message)


@pytest.mark.row(19)
def test_an_answer_to_another_question_is_refused() -> None:
    link = linked(answer(np.zeros(3)))
    inbox = Inbox(link, 1, lambda: 0.0)  # type: ignore[arg-type]
    pull = link.PullMessages

    def other(request: Any) -> Any:
        got = pull(request)
        for head in got.messages_list:
            head.metadata.reply_to_message_id = "another's question"
        return got

    link.PullMessages = other  # type: ignore[method-assign]
    (message,) = inbox.pull([], 10_000)
    assert "another question" in message.error.reason


def test_nobody_waits_for_an_answer_that_is_still_being_sent() -> None:
    link, time = linked(answer(np.zeros(3))), 0.0
    link.held = {link.id}
    inbox = Inbox(link, 1, lambda: time)  # type: ignore[arg-type]
    assert inbox.pull([], 10_000) == []
    assert inbox.pull([], 10_000) == []
    link.held = set()
    (message,) = inbox.pull([], 10_000)
    assert message.has_content()


@pytest.mark.parametrize("how", ["held", "lost"])
def test_an_answer_that_never_comes_is_lost(how: str) -> None:
    link, time = linked(answer(np.zeros(3))), 0.0
    getattr(link, how).add(link.id)
    inbox = Inbox(link, 1, lambda: time)  # type: ignore[arg-type]
    first = inbox.pull([], 10_000)
    time = PATIENCE + 1
    (message,) = first or inbox.pull([], 10_000)
    assert message.error.code == LOST


CHILD = """
import sys
from types import SimpleNamespace
from pathlib import Path
import numpy as np
from coterie.engines.flower.internals import PIECE
from tests.engines.flower.test_inbox import Link, answer, linked, pulled
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith("VmHWM:")) << 10
model = int(sys.argv[1])
link = linked(answer(np.zeros(model // 4, np.float32)))
before = peak()
(message,) = pulled(link, model + (1 << 20))
assert message.has_content()
allowed = peak() - before
leaves = [SimpleNamespace(object_id=str(i), children=[]) for i in range(int(sys.argv[2]))]
tree = SimpleNamespace(object_id="root", children=leaves)
huge = Link("root", tree, lambda key: b"ArrayChunk  %d\\0" % PIECE + key[:1].encode() * PIECE)
before = peak()
(message,) = pulled(huge, model + (1 << 20))
assert message.has_error(), message
print(allowed, peak() - before, huge.fetched)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize("pieces", [120, 200])
@pytest.mark.parametrize("model", [2_600, 20 << 20])
@pytest.mark.row(17)
def test_scorecard_17_a_huge_answer_takes_no_more_than_its_model(
    model: int, pieces: int, figure: Callable[..., None]
) -> None:
    """600 MB and 1 GB for a model of a few kilobytes or megabytes; an answer of its size passes."""
    command = [sys.executable, "-c", CHILD, str(model), str(pieces)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    _, rise, fetched = map(int, done.stdout.split())
    assert fetched <= model + (1 << 20) + PIECE + 100
    assert rise < 2 * model + (32 << 20)
    figure(f"MB claimed, of a model of {model / 1e6:.3g} MB", pieces * PIECE // 10**6, by="most")
    figure(f"MB more memory then, of a model of {model / 1e6:.3g} MB", rise / 1e6, by="most")


def test_the_fake_objects_are_flowers() -> None:
    message = answer(np.zeros(3))
    linked(message)
    root = message.object_id
    assert root == hashlib.sha256(get_all_nested_objects(message)[root].deflate()).hexdigest()
