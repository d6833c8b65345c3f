"""What watching costs the process that trains: python -m tests.overhead [REPEATS]

A run of digits is trained quietly, with a bar on a terminal, and with the live view beside it and
a reader that fetches every figure. Counted is the processor time of the training process itself:
time on the clock would measure whatever else the machine does. Beside the difference of whole runs,
which is noise to some percent, stands what was counted inside: the calls that show an event, the
start of the view, and every thread but the one that trains (the bar has one).
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path

WORDS = ["run", "--method", "fedclust", "--partition", "rotation", "--clients", "20"]
WORDS += ["--model", "cnn-s", "--rounds", "40"]
INSIDE = """
import json, sys, time
from coterie import live
from coterie.cli import progress, running
spent = {"events": 0.0, "view": 0.0}
class Clock(running.Clock):
    def __call__(self, event):
        begin = time.process_time()
        super().__call__(event)
        spent["events"] += time.process_time() - begin
running.Clock = Clock
def timed(enter=live.beside):
    from contextlib import contextmanager
    @contextmanager
    def beside(folder):
        begin = time.process_time()
        with enter(folder) as address:
            spent["view"] += time.process_time() - begin
            yield address
    return beside
live.beside = timed()
from coterie.cli.main import call
file = sys.argv.pop(1)
assert call(sys.argv[1:]) == 0
spent |= {"threads": time.process_time() - time.thread_time(), "all": time.process_time()}
open(file, "w").write(json.dumps(spent))
"""


def train(way: str) -> dict[str, float]:
    """One run, watched in one way; seconds of the processor in its process."""
    with tempfile.TemporaryDirectory() as home:
        words = [sys.executable, "-c", INSIDE, "spent", *WORDS, "--out", "r"]
        words += {"quiet": ["--quiet"], "bar": [], "live": ["--quiet", "--live"]}[way]
        ours, theirs = pty.openpty()
        run = subprocess.Popen(
            words,
            cwd=home,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        os.close(theirs)
        said = ""
        try:
            while data := os.read(ours, 4096):
                said += data.decode(errors="replace")
                if way == "live" and "\n" in said.partition("http://")[2]:
                    address = "http://" + said.partition("http://")[2].split()[0]
                    threading.Thread(target=read_on, args=(address,), daemon=True).start()
                    way = "live, with a reader"
        except OSError:
            pass  # the terminal's other end was closed
        assert run.wait() == 0, said
        os.close(ours)
        found: dict[str, float] = json.loads((Path(home) / "spent").read_text())
        return found


def read_on(address: str) -> None:
    """A page: follow the events, and fetch the figures for each."""
    home, _, token = address.partition("/?t=")
    with urllib.request.urlopen(f"{home}/events?t={token}") as stream:
        for line in stream:
            if line.startswith(b"data"):
                urllib.request.urlopen(f"{home}/figures?t={token}").read()


def main() -> None:
    """Print a line for each way."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    found: dict[str, list[dict[str, float]]] = {"quiet": [], "bar": [], "live": []}
    for _ in range(repeats):
        for way, runs in found.items():
            runs.append(train(way))
    base = min(run["all"] for run in found["quiet"])
    for way, runs in found.items():
        whole = min(run["all"] for run in runs)
        inside = min(run["events"] + run["view"] + run["threads"] for run in runs)
        print(
            f"{way:<6} {whole:7.2f} s of the processor ({100 * (whole / base - 1):+.1f} %); "
            f"counted inside {1000 * inside:6.1f} ms = {100 * inside / whole:.2f} %"
        )


if __name__ == "__main__":
    main()
