"""What happens in a worker process: a question is unfolded, and some of its portions answered."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch
from torch import Tensor

from coterie.core.errors import CoterieError
from coterie.core.types import Reply, State, Task
from coterie.engines.serial import Question, Serial
from coterie.engines.workers.shared_memory import Shelf, Slot

Portion = list[int]  # places of a cohort that are worked on at once
DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl
# M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of glibc's mallopt, in bytes. Activations of some MB would
# go back to the system after every step, and come again page by page: a sixth of the time.
KEEPS = {-3: 2**25, -1: 2**27}


@dataclass(frozen=True)
class PackedQuestion:
    """A question on its way to the workers: its tensors lie on a shelf."""

    round: int
    purpose: str
    call: int
    task: Task
    cohort: Slot
    models: Slot
    assign: Slot
    send: dict[str, Slot]
    memories: dict[int, dict[str, Slot]]  # of the cohort

    @classmethod
    def of(cls, question: Question, engine: Serial, shelf: Shelf) -> PackedQuestion:
        """Lay down what the cohort will need, and nothing else."""
        shelf.clear()
        models, assign = needed(question)
        return cls(
            engine.round,
            engine.purpose,
            question.call,
            question.task,
            shelf.put(question.cohort),
            shelf.put(models),
            shelf.put(assign),
            shelf.put_all(question.send),
            {
                i: shelf.put_all(engine.memory[i])
                for i in question.cohort.tolist()
                if i in engine.memory
            },
        )

    def open(self, engine: Serial, shelf: Shelf) -> tuple[Serial, Question]:
        """The question, and the engine as it stands in that round."""
        engine.restore({i: shelf.see_all(spots) for i, spots in self.memories.items()})
        state = State(shelf.see(self.models), shelf.see(self.assign), self.round)
        question = Question(
            shelf.see(self.cohort), self.task, state, shelf.see_all(self.send), self.call
        )
        return engine.at(self.round, self.purpose), question


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


@dataclass(frozen=True)
class Answers:
    """The replies of a portion, one below the other, on the shelf of the worker that gave them."""

    value: Slot
    extra: dict[str, Slot]
    keep: list[dict[str, Slot]]

    @classmethod
    def of(cls, replies: Sequence[Reply], shelf: Shelf) -> Answers:
        """Lay them down."""
        extra = {
            name: shelf.put_rows([r.extra[name] for r in replies]) for name in replies[0].extra
        }
        value = shelf.put_rows([r.value for r in replies])
        return cls(value, extra, [shelf.put_all(r.keep) for r in replies])

    def open(self, shelf: Shelf) -> list[Reply]:
        """Copy them: the shelf will be used again. What is kept is kept client by client."""
        extra = {name: t.clone() for name, t in shelf.see_all(self.extra).items()}
        return [
            Reply(
                value,
                {name: rows[j] for name, rows in extra.items()},
                {name: t.clone() for name, t in shelf.see_all(spots).items()},
            )
            for j, (value, spots) in enumerate(
                zip(shelf.see(self.value).clone(), self.keep, strict=True)
            )
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
    def of(cls, error: Exception) -> Failure:
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


def opened(outcomes: Sequence[Outcome], shelf: Shelf) -> list[list[Reply] | Failure]:
    """What came of some portions, as it is told here."""
    return [
        outcome if isinstance(outcome, Failure) else outcome.open(shelf) for outcome in outcomes
    ]


def work(
    engine: Serial,
    line: Connection,
    inbox: Shelf,
    outbox: Shelf,
    parent: int,
    others: Sequence[Connection] = (),
) -> None:
    """Answer what is asked until nobody asks any more: the life of a worker."""
    settle(parent)
    for other in others:  # inherited, and no business of this process: their ends must be seen
        other.close()
    view, question = engine, None
    while True:
        try:
            message = line.recv()
        except (EOFError, OSError):  # the parent closed the line, or is gone
            return
        if isinstance(message, PackedQuestion):
            view, question = message.open(engine, inbox)
            continue
        assert question is not None
        outbox.clear()
        line.send([outcome(view, question, portion, outbox) for portion in message])


def outcome(view: Serial, question: Question, portion: Portion, outbox: Shelf) -> Outcome:
    """The answers of a portion, or what went wrong with it."""
    try:
        return Answers.of(view.answer(question, portion), outbox)
    except Exception as error:
        return Failure.of(error)


def settle(parent: int) -> None:
    """Make this process a worker: one thread, deaf to Ctrl-C, and gone when its parent is."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
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
