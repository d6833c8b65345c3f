"""Started as `python -m coterie.engines.flower.child PARENT superlink|supernode ...`.

Flower's own program, which ends when its parent does, looks for nothing outside, and, for the
SuperLink, lets nobody but this machine reach anything but the interface for clients.
"""

from __future__ import annotations

import ctypes
import ipaddress
import os
import signal
import sys
import threading
import time
from typing import Any

FLEET = "/v1/fleet/"
HEARTBEAT = 10  # seconds; a client that is gone is noticed after two of them
POLL = 1.0  # seconds after which a SuperNode asks for work again


class Guard:
    """Refuses whatever comes from another machine and is not for the clients' interface.

    Behind a reverse proxy on this machine the address is the one the proxy forwards.
    """

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or answer 404."""
        if scope["type"] == "lifespan" or allowed(scope["path"], (scope["client"] or ("",))[0]):
            await self.app(scope, receive, send)
            return
        head = [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 404, "headers": head})
        await send({"type": "http.response.body", "body": b""})


def allowed(path: str, client: str) -> bool:
    """Whether a request may pass.

    >>> allowed("/v1/fleet/pull-messages", "203.0.113.9"), allowed("/v1/control/x", "203.0.113.9")
    (True, False)
    >>> allowed("/v1/control/start-run", "127.0.0.1"), allowed("/v1/control/start-run", "unknown")
    (True, False)
    >>> allowed("/v1/fleet/../control/start-run", "203.0.113.9")
    False
    """
    if path.startswith(FLEET) and ".." not in path:
        return True
    try:
        return ipaddress.ip_address(client).is_loopback
    except ValueError:
        return False


def end_with(parent: int) -> None:
    """End this process when its parent is gone, even if that was killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    if os.getppid() != parent:
        os._exit(1)
    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Read who the parent is and what to be."""
    parent, what = int(sys.argv[1]), sys.argv[2]
    end_with(parent)
    sys.argv = [f"flower-{what}", *sys.argv[3:]]
    from coterie.engines.flower import internals  # only now: to end with the parent comes first

    if what == "superlink":
        internals.run_superlink(Guard)
    else:
        internals.run_supernode(HEARTBEAT, POLL)


if __name__ == "__main__":
    main()
