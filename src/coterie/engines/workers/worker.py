"""What happens in a worker process: a question is unfolded, and some of its portions answered."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from coterie.core import stopping
from coterie.core.errors import YOUR_CODE, CoterieError
from coterie.core.types import Reply, State, Task
from coterie.engines.question import Portion, Question, Setting
from coterie.engines.serial import Serial
from coterie.engines.workers.shared_memory import Buffer, SharedBuffer, Slot

DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl
# M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of glibc's mallopt, in bytes. Activations of some MB would
# go back to the system after every step, and come again page by page: a sixth of the time.
KEEPS = {-3: 2**25, -1: 2**27}
LARGE = 2**22  # bytes, from which on memory is asked for in large pages


@dataclass(frozen=True)
class PackedQuestion:
    """A question on its way to the workers: its tensors lie in a buffer that they can read."""

    round: int
    purpose: str
    call: int
    task: Task
    slots: dict[str, Any]  # of its tensors, by name; of memories, those of the cohort

    @classmethod
    def of(cls, question: Question, buffer: Buffer) -> PackedQuestion:
        """Lay down what the cohort will need, and nothing else."""
        models, assign = needed(question)
        known = question.memories
        tensors = {
            "cohort": question.cohort,
            "sizes": question.sizes,
            "models": models,
            "assign": assign,
            "send": question.send,
            "memories": {i: known[i] for i in question.cohort.tolist() if i in known},
        }
        buffer.clear()
        slots = buffer.put_all(tensors)
        return cls(question.round, question.purpose, question.call, question.task, slots)

    def open(self, setting: Setting, buffer: Buffer) -> Question:
        """The question as it was asked, over the clients that this worker has."""
        seen = buffer.see_all(self.slots)
        state = State(seen.pop("models"), seen.pop("assign"), self.round)
        return Question(
            setting, self.round, self.purpose, self.call, task=self.task, state=state, **seen
        )


def needed(question: Question) -> tuple[Tensor, Tensor]:
    """The models that will travel to somebody, and which of them each client holds."""
    state, cohort = question.state, question.cohort
    if question.task.receives == "all":
        return state.models, state.assign
    nobody = torch.full_like(state.assign, -1)
    if question.task.receives == "nothing":
        return state.models[:0], nobody
    held, which = state.assign[cohort].unique(return_inverse=True)
    return state.models[held], nobody.index_copy(0, cohort, which)


class Table:
    """The answers of a cohort: of each name one tensor, with a row for each place.

    So they need not be put together again once all are there (`rows`).
    """

    def __init__(self, places: int) -> None:
        self.places = places
        self.tensors: dict[tuple[str, torch.Size, torch.dtype], Tensor] = {}

    def put(self, name: str, places: Portion, rows: Tensor) -> list[Tensor]:
        """Lay copies of some rows down at their places."""
        key = name, rows.shape[1:], rows.dtype
        if key not in self.tensors:
            self.tensors[key] = room_for(rows, self.places)
        found = [self.tensors[key][j] for j in places]
        for to, row in zip(found, rows, strict=True):
            to.copy_(row)
        return found


def room_for(rows: Tensor, count: int) -> Tensor:
    """A tensor of so many such rows; a large one in large pages, where the system has them.

    Memory comes page by page as it is written: with small ones that takes longer than the writing.
    """
    room = rows.new_empty((count, *rows.shape[1:]))
    if hasattr(mmap, "MADV_HUGEPAGE") and room.nbytes >= LARGE:
        start = -(-room.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        size = room.data_ptr() + room.nbytes - start
        advise = ctypes.CDLL(None).madvise
        advise(ctypes.c_void_p(start), ctypes.c_size_t(size), mmap.MADV_HUGEPAGE)
    return room


def rows(tensors: Sequence[Tensor]) -> Tensor:
    """One tensor of several: in place where they are rows of one, side by side, or else a copy.

    >>> table = torch.eye(3)
    >>> rows([table[1], table[2]]).data_ptr() == table[1].data_ptr()
    True
    >>> rows([table[0], table[2]]).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    first = tensors[0]
    memory, start, size = first.untyped_storage().data_ptr(), first.storage_offset(), first.numel()
    side_by_side = all(
        t.untyped_storage().data_ptr() == memory
        and t.storage_offset() == start + k * size
        and t.is_contiguous()
        for k, t in enumerate(tensors)
    )
    if not side_by_side:
        return torch.stack(list(tensors))
    return first.as_strided((len(tensors), *first.shape), (size, *first.stride()), start)


@dataclass(frozen=True)
class Answers:
    """The replies of a portion, one below the other, in the buffer of the worker that gave them."""

    value: Slot
    extra: dict[str, Slot]
    keep: list[dict[str, Slot]]
    alone: list[str]  # why each was answered by itself; mostly nothing

    @classmethod
    def of(cls, replies: Sequence[Reply], buffer: Buffer) -> Answers:
        """Lay them down."""
        extra = {
            name: buffer.put_rows([r.extra[name] for r in replies]) for name in replies[0].extra
        }
        value = buffer.put_rows([r.value for r in replies])
        keep = [buffer.put_all(r.keep) for r in replies]
        return cls(value, extra, keep, [r.alone for r in replies])

    def open(self, buffer: Buffer, places: Portion, table: Table) -> list[Reply]:
        """Copy them: the buffer will be used again. What is kept is kept client by client."""
        value = table.put("value", places, buffer.see(self.value))
        extra = {name: table.put(name, places, buffer.see(s)) for name, s in self.extra.items()}
        return [
            Reply(
                value[j],
                {name: rows[j] for name, rows in extra.items()},
                {name: t.clone() for name, t in buffer.see_all(slots).items()},
                alone,
            )
            for j, (slots, alone) in enumerate(zip(self.keep, self.alone, strict=True))
        ]


class WorkerError(Exception):
    """An exception of another process; its text is the traceback there."""


@dataclass(frozen=True)
class Failure:
    """An exception on its way back."""

    kind: type[CoterieError] | None  # None: not one of ours
    what: str
    told: dict[str, str]  # code, where, why, fix
    trace: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """What there is to tell of an exception; of one with a cause, the cause's traceback."""
        trace = "".join(traceback.format_exception(error.__cause__ or error)).rstrip()
        if isinstance(error, CoterieError):
            told = {name: getattr(error, name) for name in ("code", "where", "why", "fix")}
            return cls(type(error), error.what, told, trace)
        return cls(None, f"{type(error).__name__}: {error}", {}, trace)

    def error(self) -> Exception:
        """The exception, to be raised here."""
        made = RuntimeError(self.what) if self.kind is None else self.kind(self.what, **self.told)
        made.__cause__ = WorkerError(f"in a worker process\n{self.trace}")
        return made


Outcome = Answers | Failure  # of one portion


def opened(
    outcomes: Sequence[Outcome], buffer: Buffer, portions: Sequence[Portion], table: Table
) -> list[list[Reply] | Failure]:
    """What came of some portions, as it is told here."""
    return [
        outcome if isinstance(outcome, Failure) else outcome.open(buffer, places, table)
        for outcome, places in zip(outcomes, portions, strict=True)
    ]


def work(
    inner: Serial,
    setting: Setting,
    pipe: Connection,
    inbox: SharedBuffer,
    outbox: SharedBuffer,
    parent: int,
    others: Sequence[Connection] = (),
) -> None:
    """Answer what is asked until nobody asks any more: the life of a worker process."""
    become_worker(parent)
    for other in others:  # inherited, and no business of this process: their ends must be seen
        other.close()
    question: Question | None = None
    while True:
        try:
            message = pipe.recv()
        except (EOFError, OSError):  # the parent closed the pipe, or is gone
            return
        if isinstance(message, PackedQuestion):
            question = message.open(setting, inbox)
            continue
        assert question is not None
        outbox.clear()
        pipe.send([outcome(inner, question, portion, outbox) for portion in message])


def outcome(inner: Serial, question: Question, portion: Portion, outbox: Buffer) -> Outcome:
    """The answers of a portion, or what went wrong with it."""
    try:
        return Answers.of(inner.answer(question, portion), outbox)
    except YOUR_CODE as error:
        return Failure.of(error)


def become_worker(parent: int) -> None:
    """Make this process a worker: one thread, deaf to Ctrl-C, and gone when its parent is."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    stopping.hear_again()
    gc.freeze()  # what was inherited is shared with the parent as long as nobody touches it
    tune()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before that
        os._exit(1)


def tune() -> None:
    """One thread of arithmetic, and memory that is kept for the next step."""
    torch.set_num_threads(1)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        for option, size in KEEPS.items() if hasattr(libc, "mallopt") else ():
            libc.mallopt(option, size)
