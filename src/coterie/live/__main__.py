"""The server in a process of its own, started by `beside`: the token comes on its input."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from pathlib import Path

from coterie.live.server import Server

GRACE = 5.0  # seconds that open pages have to see the end of a run


def main() -> None:
    """Serve on the socket that was handed over, until the parent is gone and nobody looks on."""
    folder, handle, parent = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    server = Server(folder, socket.socket(fileno=handle), token=sys.stdin.readline().strip())
    input_ends = threading.Thread(target=sys.stdin.read, daemon=True)
    input_ends.start()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while os.getppid() == parent and input_ends.is_alive():
        input_ends.join(0.5)
    until = time.monotonic() + GRACE
    while server.watchers and time.monotonic() < until:
        time.sleep(0.1)


if __name__ == "__main__":
    main()
