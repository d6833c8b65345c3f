"""Whoever listens to the named points of a run, and strikes at one."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from coterie.core.points import POINTS

Hear = Callable[[str, tuple[object, ...]], None]
_listeners: list[Hear] = []
_hooked: list[bool] = []


def _hook(event: str, about: tuple[object, ...]) -> None:
    if _listeners and event.startswith("coterie."):
        _listeners[-1](event.removeprefix("coterie."), about)


@contextmanager
def listening(hear: Hear) -> Iterator[None]:
    """Inside it, every point that is reached is told."""
    if not _hooked:  # a hook cannot be taken away, so there is one for all
        _hooked.append(True)
        sys.addaudithook(_hook)
    _listeners.append(hear)
    try:
        yield
    finally:
        _listeners.pop()


def reached(work: Callable[[], object]) -> list[str]:
    """The points that some work reaches, in their order."""
    found: list[str] = []

    def hear(point: str, about: tuple[object, ...]) -> None:
        assert point in POINTS, f"{point} is not among the points that are explained"
        found.append(" ".join([point, *map(str, about)]))

    with listening(hear):
        work()
    return found


def forked(work: Callable[[], int]) -> int:
    """The number of a process that does some work, and ends with the code it gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of ours are not in the child
        child = os.fork()
    if child:
        return child
    code = 99
    try:
        code = work()
    finally:
        os._exit(code)  # whatever happened, this is not the test any more


def ended(child: int) -> int:
    """How a process ended: its code, or the signal below zero."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_at(n: int, work: Callable[[], object]) -> None:
    """Some work in a process of its own, which SIGKILL ends at the n-th point that it reaches."""
    left = [n]

    def hear(point: str, about: tuple[object, ...]) -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    def struck() -> int:
        with listening(hear):
            work()
        return 0

    assert ended(forked(struck)) == -signal.SIGKILL
