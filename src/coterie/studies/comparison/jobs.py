"""Several cells of a comparison at once, each in a process of its own.

`python -m coterie.studies.comparison.jobs FOLDER CELL` runs one cell of the comparison in FOLDER
and prints what happens, a JSON object a line. It ends when its standard input does: a process whose
parent is gone, even by kill -9, does not train on.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.core.events import Listener
    from coterie.runs.comparison import Cell

GONE = 3  # the exit code of a process whose parent has ended


def in_processes(jobs: int, cells: Sequence[Cell], listen: Listener) -> dict[str, str]:
    """Run cells, `jobs` at a time, each in a process of its own; why each that failed did."""
    failed: dict[str, str] = {}
    lock = threading.Lock()
    processes: set[subprocess.Popen[str]] = set()
    stopping = threading.Event()

    def tell(event: dict[str, Any]) -> None:
        with lock:
            listen(event)

    def one(cell: Cell) -> None:
        words = [sys.executable, "-m", __name__, str(cell.folder.parent), cell.folder.name]
        pipe = subprocess.PIPE
        with subprocess.Popen(words, text=True, stdin=pipe, stdout=pipe, stderr=pipe) as child:
            processes.add(child)
            if stopping.is_set():
                child.terminate()
            assert child.stdout
            assert child.stderr
            told: list[str] = []
            drain = threading.Thread(target=lambda: told.extend(child.stderr or ()))
            drain.start()
            for line in child.stdout:
                tell(json.loads(line))
            code = child.wait()
            drain.join()
        if code and not stopping.is_set():
            why = "".join(told).strip() or f"its process ended with {code}"
            failed[cell.folder.name] = why
            tell({"event": "failed", "text": why, "cell": cell.folder.name})

    pool = ThreadPoolExecutor(jobs)
    try:
        list(pool.map(one, cells))
    except BaseException:
        stopping.set()
        pool.shutdown(wait=False, cancel_futures=True)
        for child in processes:
            child.terminate()
        raise
    finally:
        pool.shutdown()
    return failed


def main(folder: str, name: str) -> int:
    """Run one cell."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    threading.Thread(target=leave_with_the_parent, daemon=True).start()
    # Only now, for torch takes its time.
    from coterie import config as configs
    from coterie.config import toml
    from coterie.runs.comparison import Comparison
    from coterie.studies.comparison.cells import error_text, listener_of, run_cell

    comparison = Comparison.load(folder)
    cell = next(c for c in comparison.cells if c.folder.name == name)
    listen = listener_of(cell, lambda event: print(json.dumps(event), flush=True))
    experiment = {**comparison.asked["experiments"][cell.label], "seed": cell.seed}
    try:
        name = str(comparison.folder / "compare.toml")
        # The parent has read the same experiment, and allowed its code, before it started this.
        config = configs.loads(toml.write(experiment), name, allow_code=True)
        run_cell(config, cell, listen)
    except Exception as error:
        print(error_text(error), file=sys.stderr)
        return 1
    return 0


def leave_with_the_parent() -> None:
    """End this process at once when nobody holds the other end of its input."""
    while os.read(0, 4096):  # not sys.stdin: a fork would inherit the lock of its buffer
        pass
    os._exit(GONE)


if __name__ == "__main__":
    Path(sys.argv[1]).resolve(strict=True)
    code = main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # not through the thread that waits for the input
