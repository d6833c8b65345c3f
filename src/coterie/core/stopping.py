"""How a person stops a program: at once while it is starting, in good order once it has begun.

An exception in the midst of an import leaves half a module behind, whose native code may abort and
whose other half is missed by whatever runs at the end. So none is raised there. Nor where Python or
a library makes something else of it: an exception that leaves a text which is executed, as
dataclasses execute some, ends the process by the signal whoever catches it, and pydantic wraps it
in an error.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130  # the exit code of whoever was stopped
SIGNALS = (signal.SIGINT, signal.SIGTERM)
IMPORTING = "<frozen importlib._bootstrap>"  # the file of every frame below an import
TEXT = ("<string>", "<module>")  # the file and the name of a text that is executed
WRAPPING = "pydantic"  # the package that makes an error of its own of every exception
AGAIN = 0.05  # seconds until a signal is heard again that came at the wrong moment

_begun = 0  # how much is under way that is not to be left without a word
_stopping = False
_outside = 0  # how many frames an exception never comes to: whoever listens has caught it


def heed() -> None:
    """Listen to Ctrl-C and SIGTERM; whoever calls this lets no KeyboardInterrupt pass."""
    global _outside
    _outside = len(stack(sys._getframe(1)))
    for number in SIGNALS:
        signal.signal(number, interrupt)


def leave_with(code: int) -> None:
    """All is done: whoever stops the program now ends it with this code, without a traceback."""
    for number in SIGNALS:
        signal.signal(number, lambda *_: os._exit(code))


def interrupt(number: int, frame: FrameType | None) -> None:
    """The first signal stops in good order; the second at once."""
    global _stopping
    if _stopping and number in SIGNALS:
        os._exit(INTERRUPTED)
    if importing(frame) and not _begun:
        os.write(2, b"\ninterrupted\n")
        os._exit(INTERRUPTED)
    if importing(frame) or lost(frame):
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, AGAIN)
        return
    _stopping = True
    raise KeyboardInterrupt


def importing(frame: FrameType | None) -> bool:
    """Whether a frame is below an import."""
    return any(one.f_code.co_filename == IMPORTING for one in inside(frame))


def lost(frame: FrameType | None) -> bool:
    """Whether an exception raised here would arrive as something else."""
    return any(
        (one.f_code.co_filename, one.f_code.co_name) == TEXT
        or str(one.f_globals.get("__name__", "")).partition(".")[0] == WRAPPING
        for one in inside(frame)
    )


def inside(frame: FrameType | None) -> list[FrameType]:
    """A frame and those it was called by, up to whoever listens."""
    frames = stack(frame)
    return frames[: max(0, len(frames) - _outside)]


def stack(frame: FrameType | None) -> list[FrameType]:
    """A frame and all that it was called by."""
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


@contextmanager
def begun() -> Iterator[None]:
    """Something is under way: whoever stops it shall be told how to go on."""
    global _begun
    _begun += 1
    try:
        yield
    finally:
        _begun -= 1


@contextmanager
def deaf() -> Iterator[None]:
    """Signals wait: a process that is started meanwhile has none of them before it can answer."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hear_again() -> None:
    """End the deafness that a process was started in."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
