"""How a person stops a program: at once while it is starting, in good order once it has begun.

An exception in the midst of an import leaves half a module behind, whose native code may abort and
whose other half is missed by whatever runs at the end. So none is raised there.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130  # the exit code of whoever was stopped
SIGNALS = (signal.SIGINT, signal.SIGTERM)
IMPORTING = "<frozen importlib._bootstrap>"  # the file of every frame below an import
AGAIN = 0.05  # seconds until a signal is heard again that came at the wrong moment

_begun = 0  # how much is under way that is not to be left without a word
_stopping = False


def heed() -> None:
    """Listen to Ctrl-C and SIGTERM."""
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
    if importing(frame):
        if not _begun:
            os.write(2, b"\ninterrupted\n")
            os._exit(INTERRUPTED)
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, AGAIN)
        return
    _stopping = True
    raise KeyboardInterrupt


def importing(frame: FrameType | None) -> bool:
    """Whether a frame is below an import."""
    while frame is not None:
        if frame.f_code.co_filename == IMPORTING:
            return True
        frame = frame.f_back
    return False


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
