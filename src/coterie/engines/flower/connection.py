"""How Flower's programs on this machine are reached by us."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from coterie.engines.flower.children import Child
from coterie.engines.flower.internals import (
    ACQUIRE,
    AcquireTaskRequest,
    RuntimeHttpClient,
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SendTaskHeartbeatRequest,
    SuperExecAuthHttpInterceptor,
)

BEAT = 5.0  # seconds between two signs of life


@dataclass(frozen=True)
class Endpoint:
    """A port of this machine on which a program of Flower's is reached, and the secret for it."""

    port: int
    secret: bytes
    ca: Path | None = None  # None: without TLS

    def connect(self, kind: Any, *interceptors: Any) -> Any:
        """A client of some interface. It does not try again by itself: we have deadlines."""
        return kind.from_server_address(
            server_address=f"127.0.0.1:{self.port}",
            insecure=self.ca is None,
            root_certificates=self.ca.read_bytes() if self.ca else None,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="coterie"), *interceptors],
        )

    def executor(self) -> RuntimeHttpClient:
        """Whoever may take tasks: it has to know the secret."""
        signed = SuperExecAuthHttpInterceptor(
            master_secret=self.secret, protected_methods=frozenset({ACQUIRE})
        )
        client: RuntimeHttpClient = self.connect(RuntimeHttpClient, signed)
        return client

    def holder(self, token: str) -> RuntimeHttpClient:
        """Whoever took a task, and has its token."""
        client: RuntimeHttpClient = self.connect(
            RuntimeHttpClient, RuntimeTokenHttpInterceptor(token)
        )
        return client


def wait_until_up(endpoint: Endpoint, child: Child, seconds: float = 60.0) -> None:
    """Until a program answers on its port."""
    end = time.monotonic() + seconds
    with endpoint.executor() as client:
        while True:
            child.check()
            try:
                client.AcquireTask(AcquireTaskRequest())
                return
            except httpx.TransportError:
                if time.monotonic() > end or child.deaths > 3:
                    raise child.failed("does not start") from None
            time.sleep(0.1)


@contextmanager
def beating(client: RuntimeHttpClient) -> Iterator[None]:
    """Say every few seconds that a task is being worked on."""
    over = threading.Event()

    def beat() -> None:
        while not over.is_set():
            with suppress(httpx.HTTPError):  # it may be back at the next beat
                client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
            over.wait(BEAT)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
