"""How a run is, from its folder alone: nothing is locked and nothing is written."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

OWNER = re.compile(r"process (\d+) on (.+)")


def state(folder: Path) -> dict[str, str]:
    """One word for how a run is: waiting, running, done or stopped."""
    if not (folder / "run.toml").exists():
        return {"state": "waiting"}
    if ended(folder / "events.jsonl"):
        return {"state": "done"}
    return {"state": "running" if held(folder / ".lock") else "stopped"}


def ended(events: Path) -> bool:
    """Whether the last thing that happened is the end."""
    try:
        with open(events, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            lines = file.read().splitlines()
    except FileNotFoundError:
        return False
    kinds = [line for line in lines if re.search(rb'"event": "(start|resume|round|done)"', line)]
    return bool(kinds) and b'"event": "done"' in kinds[-1]


def held(lock: Path) -> bool:
    """Whether the process that wrote the lock is alive; of another machine, it is believed.

    The lock itself is not tried: for that moment a run that starts would find it taken.
    """
    try:
        owner = OWNER.match(lock.read_text())
    except FileNotFoundError:
        return False
    if not owner:
        return False
    if owner[2] != socket.gethostname():
        return True
    try:
        os.kill(int(owner[1]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
