"""SuperLink and SuperNode as processes of ours: started again when they die, ended with us."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from coterie.core.errors import ConfigError

BACKOFF = 1.0  # seconds before a dead program is started again; twice as long each time
QUICK = 5.0  # seconds; a process that dies sooner was not able to work


class Child:
    """One program, kept alive. `judge(code, log)` may raise about a death that is not an accident;
    the error is raised to whoever calls `check`."""

    def __init__(
        self,
        what: str,
        arguments: Sequence[str],
        home: Path,
        judge: Callable[[int, str], None] = lambda code, log: None,
        certs: Path | None = None,
    ) -> None:
        self.what, self.judge, self.log = what, judge, home / f"{what}.log"
        self.command = [sys.executable, "-m", "coterie.engines.flower.child", str(os.getpid())]
        self.command += [what, str(home), str(certs or ""), *arguments]
        self.environment = {
            **os.environ,
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_HOME": str(home / "flwr"),
            "PYTHONWARNINGS": "ignore",
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.fault: Exception | None = None
        self.deaths = 0
        self._over = threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> Self:
        self._keeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._keeper.join()

    def _keep(self) -> None:
        """Start it, wait, start it again, all in one thread: a child ends with its thread."""
        while not self._over.is_set() and self.fault is None:
            began = time.monotonic()
            with open(self.log, "ab") as log:
                mark = log.tell()
                self.process = subprocess.Popen(
                    self.command,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C is for us: we end it in good order
                )
            while self.process.poll() is None and not self._over.wait(0.1):
                pass
            if self.process.poll() is None:
                end(self.process)
                return
            said = self.log.read_bytes()[mark:][-20_000:].decode(errors="replace")
            self.deaths = self.deaths + 1 if time.monotonic() - began < QUICK else 0
            try:
                self.judge(self.process.returncode, said)
            except Exception as fault:  # raised again where it is looked for
                self.fault = fault
            self._over.wait(min(BACKOFF * 2**self.deaths, 15.0))

    def check(self) -> None:
        """Raise what ended it for good."""
        if self.fault is not None:
            raise self.fault

    def failed(self, why: str) -> ConfigError:
        """The error about a program that does not work, with the last lines it wrote."""
        said = self.log.read_text(errors="replace") if self.log.exists() else ""
        return ConfigError(
            f"{self.what} {why}",
            code="C052",
            where=str(self.log),
            why="\n".join(said.splitlines()[-5:]) or "it wrote nothing",
            fix='pip install "coterie[flower]"; or choose another --port if this one is taken',
        )


def end(process: subprocess.Popen[bytes], seconds: float = 5.0) -> None:
    """End a process: by itself within so many seconds, or else by force."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
