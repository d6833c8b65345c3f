"""A real federation on this machine: servers and clients as processes, started as a user would."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

EXPERIMENT = """
method = "{method}"
seed = 1
[partition]
kind = "rotation:0,180"
clients = {clients}
[data]
public = 1
[model]
name = "mclr"
[train]
rounds = {rounds}
local_epochs = 1
[evaluate]
every = {rounds}
[engine]
deadline = 240
quorum = 1.0
connect_timeout = 120
"""
AUDIT = """
import os, sys
def hear(event, args):
    if event == "socket.connect":
        line = f"{event} {args[1]!r}"
    elif event == "socket.getaddrinfo":
        line = f"{event} {args[0]!r}"
    else:
        return
    handle = os.open(os.environ["AUDIT"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, (line + chr(10)).encode())
    os.close(handle)
sys.addaudithook(hear)
"""


def coterie(
    *words: object, check: bool = True, **keywords: Any
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "coterie", *map(str, words)]
    keywords = {"capture_output": True, "text": True, "timeout": 900, **keywords}
    done = subprocess.run(command, **keywords)
    assert not check or done.returncode == 0, done.stderr
    return done


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Machine:
    """A folder with an experiment, certificates, and the processes that were started there."""

    def __init__(self, home: Path, method: str = "fedclust", clients: int = 4, rounds: int = 3):
        self.home, self.port, self.clients = home, free_port(), clients
        self.processes: list[subprocess.Popen[bytes]] = []
        self.write(method, rounds)
        coterie("certs", home / "certs", "--clients", clients)
        (home / "audit").mkdir()
        (home / "audit" / "sitecustomize.py").write_text(AUDIT)

    def write(self, method: str, rounds: int) -> Path:
        file = self.home / f"{method}.toml"
        text = EXPERIMENT.format(method=method, clients=self.clients, rounds=rounds)
        file.write_text(text)
        self.file = file
        return file

    def start(self, name: str, *words: object) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [str(self.home / "audit"), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
            "AUDIT": str(self.home / "connections"),
            "OMP_NUM_THREADS": "1",
        }
        with open(self.home / f"{name}.out", "ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "coterie", *map(str, words)],
                env=environment,
                stdout=out,
                stderr=out,
                cwd=self.home,
            )
        self.processes.append(process)
        return process

    def serve(self, out: str, *words: object, resume: bool = False) -> subprocess.Popen[bytes]:
        what = ["--resume", out] if resume else [self.file, "--out", out]
        certs = ["--certs", "certs/server", "--port", self.port]
        return self.start(out, "serve", *what, *certs, "--json", *words)

    def join(self, i: int, *words: object) -> subprocess.Popen[bytes]:
        share = ["--data", "digits", "--client", i, "--partition-from", self.file]
        certs = ["--certs", f"certs/clients/{i}", "--state", f"state{i}"]
        return self.start(f"client{i}", "join", f"localhost:{self.port}", *certs, *share, *words)

    def events(self, out: str) -> list[dict[str, Any]]:
        file = self.home / out / "events.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def wait_for(
        self, out: str, found: Callable[[dict[str, Any]], bool], seconds: int = 900
    ) -> None:
        wait(lambda: any(found(e) for e in self.events(out)), seconds, self.said(out))

    def said(self, name: str) -> Callable[[], str]:
        return lambda: (self.home / f"{name}.out").read_text()[-2000:]

    def outside(self) -> list[str]:
        """Attempts to reach, or to look up, anything but this machine."""
        ours = ("127.0.0.1", "'localhost'", "'::1'", "b'localhost'", "b'127.0.0.1'", "/")
        lines = (self.home / "connections").read_text().splitlines()
        assert lines, "the audit heard nothing"
        return [x for x in lines if not any(part in x for part in ours)]

    def stop(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            process.wait(120)


def wait(ready: Callable[[], Any], seconds: int, said: Callable[[], str] = str) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, f"nothing in {seconds} s: {said()}"
        time.sleep(0.1)


def children(pid: int) -> list[int]:
    """The processes that a process started, and theirs."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *children(child)]
    return found


def alive(pids: Sequence[int]) -> list[int]:
    def there(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
        except OSError:
            return False

    return [pid for pid in pids if there(pid)]


@contextmanager
def machine(home: Path, **keywords: Any) -> Iterator[Machine]:
    made = Machine(home, **keywords)
    try:
        yield made
    finally:
        pids = [p for process in made.processes for p in children(process.pid)]
        made.stop()
        wait(lambda: not alive(pids), 60)
