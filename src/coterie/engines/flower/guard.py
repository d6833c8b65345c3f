"""What stands before the SuperLink and sees every request before it is read.

Clients reach their interface and nothing else; whatever else there is asks for a credential. Who
a request comes from and how large it may be is decided from its head: a request that is refused
takes no memory.
"""

from __future__ import annotations

import asyncio
import binascii
import datetime
import hashlib
import hmac
import ipaddress
import json
from base64 import b64decode
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from coterie.engines.flower import internals

FLEET = "/v1/fleet/"
HEADER = "x-coterie-credential"
LARGEST = internals.PIECE + (1 << 18)  # bytes of a request: one piece of an array, and its address
AT_ONCE = 4  # requests of one client that are read at a time; its others wait
UNKNOWN = 32  # the same for all together, where nobody is asked for a key
REFUSED = 412  # the status for a client that is not let in
MANY = 100  # refusals that are written down
SECONDS = 60.0  # in which a request must have come
CLOCKS = 305.0  # seconds that a client's clock may differ, as Flower has it
UNLISTED = "this server does not list the key of this client"
TOO_LARGE = f"a request of more than {LARGEST:,} bytes"
UNSIGNED = "the request is not signed with its key; or the clocks differ by minutes"

Head = Mapping[bytes, bytes]


def credential(secret: bytes) -> str:
    """What shows that a request comes from who knows a server's secret."""
    return hmac.new(secret, b"coterie: all but the clients' interface", hashlib.sha256).hexdigest()


class Guard:
    """Passes a request on to the SuperLink, or answers it and closes its connection.

    Behind a reverse proxy on this machine the address is the one the proxy forwards.
    """

    def __init__(
        self,
        app: Any,
        secret: bytes,
        keys: Collection[bytes] | None,
        note: Callable[[str, str], None] = lambda who, why: None,
    ) -> None:
        self.app, self.credential, self.note = app, credential(secret).encode(), note
        self.keys = keys  # of the clients that are listed; None: nobody is asked for one
        waiting = {b"": UNKNOWN} if keys is None else dict.fromkeys(keys, AT_ONCE)
        self.turns = {key: asyncio.Semaphore(count) for key, count in waiting.items()}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Deal with one request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        elif not is_fleet(scope["path"]):
            await self.beyond(scope, receive, send)
        else:
            await self.fleet(scope, receive, send)

    async def beyond(self, scope: Any, receive: Any, send: Any) -> None:
        """A request for what is not the clients': from this machine, by who knows the secret."""
        head = dict(scope["headers"])
        if not from_here(address(scope)):
            await self.refuse(scope, send, 404, "only the clients' interface is open to others")
        elif not hmac.compare_digest(head.get(HEADER.encode(), b""), self.credential):
            await self.refuse(scope, send, 401, "all but the clients' interface is the server's")
        else:
            await self.app(scope, receive, send)

    async def fleet(self, scope: Any, receive: Any, send: Any) -> None:
        """A request of a client: its key first, then its size, then its body.

        REFUSED is what Flower itself answers to a key it does not know: at 401 or 403 a SuperNode
        ends without a word of why.
        """
        head = dict(scope["headers"])
        key = b"" if self.keys is None else named_key(head)
        if key not in self.turns:
            await self.refuse(scope, send, REFUSED, UNLISTED)
            return
        if self.keys is not None and not signed(head, key):
            await self.refuse(scope, send, REFUSED, UNSIGNED)
            return
        length = head.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > LARGEST:
            await self.refuse(scope, send, 413, TOO_LARGE)
            return
        async with self.turns[key]:
            try:
                async with asyncio.timeout(SECONDS):
                    body = await read(receive)
            except TimeoutError:
                await self.refuse(scope, send, 408, f"it was not there in {SECONDS:.0f} s")
                return
            if body is None:
                await self.refuse(scope, send, 413, TOO_LARGE)
                return

            async def again() -> Any:
                """What was read, then whatever comes."""
                return body.pop(0) if body else await receive()

            await self.app(scope, again, send)

    async def refuse(self, scope: Any, send: Any, status: int, why: str) -> None:
        """Answer without reading: what still comes on this connection is not taken."""
        self.note(address(scope), why)
        body = json.dumps({"code": status, "detail": why}).encode()
        head = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": body})


def address(scope: Any) -> str:
    """Where a request comes from."""
    return str((scope["client"] or ("",))[0])


class Refusals:
    """A file of who was refused and why, each once: the guard writes it, the server tells it."""

    def __init__(self, file: Path) -> None:
        self.file, self.seen = file, set[tuple[str, str]]()

    def note(self, who: str, why: str) -> None:
        """Write one down, unless it is there; many are not all written."""
        if (who, why) not in self.seen and len(self.seen) < MANY:
            self.seen.add((who, why))
            with self.file.open("a") as lines:
                lines.write(json.dumps([who, why]) + "\n")

    def new(self) -> list[tuple[str, str]]:
        """Those that were not told before."""
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        found = list(dict.fromkeys((who, why) for who, why in map(json.loads, lines)))
        told, self.seen = self.seen, {*found}
        return [each for each in found if each not in told]


async def read(receive: Any) -> list[dict[str, Any]] | None:
    """The parts of a request's body; None as soon as they are too much."""
    parts, size = [], 0
    while True:
        part = await receive()
        parts.append(part)
        size += len(part.get("body", b""))
        if size > LARGEST:
            return None
        if part["type"] != "http.request" or not part.get("more_body"):
            return parts


def named_key(head: Head) -> bytes:
    """The public key that a request names; empty if none."""
    try:
        return b64decode(head[internals.KEY_HEADER], validate=True)
    except (KeyError, binascii.Error):
        return b""


def signed(head: Head, key: bytes) -> bool:
    """Whether the owner of a key signed a request just now: from its head, which is what is signed.

    Flower looks at the same signature, but has read the body by then.
    """
    try:
        time = head[internals.TIME_HEADER]
        age = internals.now() - datetime.datetime.fromisoformat(time.decode("ascii"))
        signature = b64decode(head[internals.SIGNATURE_HEADER], validate=True)
        public = internals.bytes_to_public_key(key)
        recent = abs(age.total_seconds()) < CLOCKS
        return recent and bool(internals.verify_signature(public, time, signature))
    except (KeyError, ValueError, TypeError):  # no such header, or nonsense in it
        return False


def is_fleet(path: str) -> bool:
    """Whether a path belongs to the clients' interface.

    >>> is_fleet("/v1/fleet/pull-messages"), is_fleet("/v1/control/start-run")
    (True, False)
    >>> is_fleet("/v1/fleet/../control/start-run")
    False
    """
    return path.startswith(FLEET) and ".." not in path


def from_here(client: str) -> bool:
    """Whether a request comes from this machine.

    >>> from_here("127.0.0.1"), from_here("203.0.113.9"), from_here("unknown")
    (True, False, False)
    """
    try:
        return ipaddress.ip_address(client).is_loopback
    except ValueError:
        return False
