"""Started as `python -m coterie.engines.flower.child PARENT superlink|supernode HOME CERTS ...`.

Flower's own program, which ends when its parent does and looks for nothing outside; before the
SuperLink stands our guard. CERTS is empty where nobody is asked for a key.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

HEARTBEAT = 10  # seconds; a client that is gone is noticed after two of them
POLL = 1.0  # seconds after which a SuperNode asks for work again


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
    parent, what, home, folder = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4]
    end_with(parent)
    sys.argv = [f"flower-{what}", *sys.argv[5:]]
    # Only now: to end with the parent comes first.
    from coterie.engines.flower import certs, internals
    from coterie.engines.flower.guard import Guard, Refusals

    if what == "superlink":
        keys = frozenset(certs.listed(Path(folder)).values()) if folder else None
        secret, note = (home / "secret").read_bytes(), Refusals(home / "refused").note
        internals.run_superlink(Guard, secret=secret, keys=keys, note=note)
    else:
        internals.run_supernode(HEARTBEAT, POLL)


if __name__ == "__main__":
    main()
