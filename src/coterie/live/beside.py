"""Where the view listens, and how it is started beside a run."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from coterie.core.errors import ConfigError


class View(NamedTuple):
    """A place to listen that nobody else has, and the word that opens it."""

    socket: socket.socket
    token: str

    @property
    def address(self) -> str:
        """What is opened in a browser."""
        return f"http://127.0.0.1:{self.socket.getsockname()[1]}/?t={self.token}"


def listening(port: int = 0) -> View:
    """A listening socket of this machine alone; port 0 is any that is free."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(("127.0.0.1", port))
    except OSError as cause:
        made.close()
        raise ConfigError(
            f"port {port} cannot be used: {cause.strerror}",
            code="C046",
            fix="name another with --port, or none: a free one is then chosen",
        ) from cause
    made.listen(16)
    return View(made, secrets.token_urlsafe(16))


@contextmanager
def beside(folder: Path) -> Iterator[str]:
    """The view of a run in a process of its own, and its address.

    The socket listens at once, so nobody waits for the process to start. It ends with this context
    or this process, a moment later if a page is open: that page sees the end of the run.
    """
    view = listening()
    address = view.address
    handle = view.socket.fileno()
    words = [sys.executable, "-m", "coterie.live", str(folder), str(handle), str(os.getpid())]
    child = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[handle],
        start_new_session=True,  # Ctrl-C is for the run
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert child.stdin
    child.stdin.write(f"{view.token}\n".encode())  # not an argument: those are seen by all users
    child.stdin.flush()
    view.socket.close()
    try:
        yield address
    finally:
        child.stdin.close()  # the end of its input is the end of the view
        threading.Thread(target=child.wait, daemon=True).start()
