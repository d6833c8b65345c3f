"""Who may ask the SuperLink for what, and how much may be sent: decided before a body is read."""

from __future__ import annotations

import asyncio
import datetime
import select
import socket
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec

from coterie.engines.flower import internals, nginx
from coterie.engines.flower.guard import AT_ONCE, HEADER, LARGEST, Guard, credential

SECRET = b"s" * 32
PUSH = "/v1/fleet/push-object"
REGISTER = "/v1/control/register-node"


def made() -> tuple[ec.EllipticCurvePrivateKey, bytes]:
    key = ec.generate_private_key(ec.SECP384R1())
    pem = form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo
    return key, key.public_key().public_bytes(*pem)


LISTED, LISTED_PEM = made()
OTHER, OTHER_PEM = made()


def signed(
    key: ec.EllipticCurvePrivateKey = LISTED, pem: bytes = LISTED_PEM, late: float = 0.0
) -> dict[bytes, bytes]:
    when = internals.now() - datetime.timedelta(seconds=late)
    time = when.isoformat().encode()
    signature = key.sign(time, ec.ECDSA(hashes.SHA256()))
    return {
        internals.KEY_HEADER: b64encode(pem),
        internals.TIME_HEADER: time,
        internals.SIGNATURE_HEADER: b64encode(signature),
    }


class Seen:
    """What an app behind the guard got, what was answered, and how much was read."""

    def __init__(self) -> None:
        self.status, self.read, self.body = 0, 0, b""
        self.reached = self.closed = False


def ask(
    path: str,
    head: dict[bytes, bytes],
    parts: Sequence[bytes] = (b"",),
    *,
    client: str = "127.0.0.1",
    keys: frozenset[bytes] | None = frozenset({LISTED_PEM}),
) -> Seen:
    seen, left = Seen(), list(parts)

    async def receive() -> dict[str, Any]:
        part = left.pop(0)
        seen.read += len(part)
        return {"type": "http.request", "body": part, "more_body": bool(left)}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            seen.status = message["status"]
            seen.closed = (b"connection", b"close") in message["headers"]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.reached = True
        more = True
        while more:
            part = await receive()
            seen.body, more = seen.body + part["body"], part["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})

    scope = {"type": "http", "path": path, "client": (client, 1), "headers": list(head.items())}
    asyncio.run(Guard(app, SECRET, keys)(scope, receive, send))
    return seen


def test_a_listed_clients_body_passes_whole() -> None:
    parts = [b"a" * 1000, b"b" * internals.PIECE, b"c"]
    length = str(sum(map(len, parts))).encode()
    for head in (signed() | {b"content-length": length}, signed()):
        seen = ask(PUSH, head, parts, client="203.0.113.9")
        assert (seen.status, seen.body) == (200, b"".join(parts))


@pytest.mark.parametrize(
    "head",
    [
        {},
        signed(OTHER, OTHER_PEM),
        signed(OTHER, LISTED_PEM),
        signed(late=900.0),
        {internals.KEY_HEADER: b64encode(LISTED_PEM)},
        {internals.KEY_HEADER: b"not base64"},
    ],
    ids=["no key", "unlisted", "anothers key", "an old signature", "unsigned", "nonsense"],
)
@pytest.mark.row(28, counts="strangers and keys")
def test_who_has_no_listed_key_is_refused_unread(head: dict[bytes, bytes]) -> None:
    seen = ask(PUSH, head, [b"x" * 1000])
    assert (seen.status, seen.reached, seen.read, seen.closed) == (412, False, 0, True)


@pytest.mark.parametrize("length", [str(LARGEST + 1), "7" * 5000, "-1", "much"])
@pytest.mark.row(17)
def test_a_declared_size_is_refused_unread(length: str) -> None:
    seen = ask(PUSH, signed() | {b"content-length": length.encode()}, [b"x" * 1000])
    assert (seen.status, seen.reached, seen.read, seen.closed) == (413, False, 0, True)


@pytest.mark.parametrize("head", [{}, {b"content-length": b"10"}], ids=["chunked", "a lie"])
@pytest.mark.row(17)
def test_what_was_not_declared_is_counted(head: dict[bytes, bytes]) -> None:
    part = b"x" * (1 << 16)
    seen = ask(PUSH, signed() | head, [part] * 10_000)
    assert (seen.status, seen.reached, seen.closed) == (413, False, True)
    assert LARGEST < seen.read <= LARGEST + len(part)


def test_without_keys_sizes_are_still_refused() -> None:
    assert ask(PUSH, {}, keys=None).status == 200
    assert ask(PUSH, {b"content-length": str(LARGEST + 1).encode()}, keys=None).status == 413


@pytest.mark.parametrize("path", [REGISTER, "/v1/runtime/acquire-task", "/docs", "/v1/fleet/../x"])
@pytest.mark.row(28, counts="strangers and keys")
def test_all_but_the_clients_interface_asks_for_a_credential(path: str) -> None:
    ours = {HEADER.encode(): credential(SECRET).encode()}
    theirs = {HEADER.encode(): credential(b"another secret").encode()}
    assert ask(path, ours).status == 200
    for head in ({}, theirs, {HEADER.encode(): b""}, signed()):
        seen = ask(path, head)
        assert (seen.status, seen.reached, seen.read) == (401, False, 0)
    assert ask(path, ours, client="203.0.113.9").status == 404


def test_one_client_cannot_have_many_bodies_read_at_once() -> None:
    inside = most = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.01)
        inside -= 1

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def all_at_once() -> None:
        guard = Guard(app, SECRET, frozenset({LISTED_PEM}))
        scope = {"type": "http", "path": PUSH, "client": None, "headers": [*signed().items()]}
        await asyncio.gather(*(guard(scope, receive, None) for _ in range(20)))

    asyncio.run(all_at_once())
    assert most == AT_ONCE


def test_nginx_takes_no_more_than_the_guard(tmp_path: Path) -> None:
    text = nginx.configuration(tmp_path, 9093, "443")
    assert f"client_max_body_size {LARGEST};" in text


SERVER = """
import sys, asyncio, uvicorn
from coterie.engines.flower.guard import Guard
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return
    body, more = b"", True
    while more:
        part = await receive()
        body, more = body + part.get("body", b""), part.get("more_body")
    head = [(b"content-length", b"0"), (b"x-size", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": b""})
keys = None if sys.argv[2] == "open" else frozenset()
uvicorn.run(Guard(app, b"s", keys), port=int(sys.argv[1]), log_level="error", lifespan="off")
"""


def peak(pid: int) -> int:
    """The most memory a process ever had, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith("VmHWM:")) << 10


def flood(port: int, size: int, *, chunked: bool) -> tuple[int, int]:
    """The status of a large POST, and how many bytes of it left before it was answered."""
    length = "transfer-encoding: chunked" if chunked else f"content-length: {size}"
    head = f"POST {PUSH} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{length}\r\n\r\n"
    sent, answer = 0, b""
    try:
        with socket.create_connection(("127.0.0.1", port), 60) as wire:
            wire.sendall(head.encode())
            while sent < size and not select.select([wire], [], [], 0)[0]:
                part = b"x" * min(65536, size - sent)
                wire.sendall(b"%x\r\n%s\r\n" % (len(part), part) if chunked else part)
                sent += len(part)
            if chunked and sent == size:
                wire.sendall(b"0\r\n\r\n")
            answer = wire.recv(1000)
    except OSError:  # it was closed while we sent
        pass
    return int((answer.split() or [b"", b"0"])[1]), sent


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize("mode", ["open", "keys"])
@pytest.mark.row(17)
def test_scorecard_17_a_flood_takes_no_memory(mode: str, figure: Callable[..., None]) -> None:
    """700 MB, declared or not, by somebody without a key; what is allowed passes."""
    from tests.engines.flower.machine import free_port, wait

    port = free_port()
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(port), mode])
    try:
        wait(lambda: flood(port, 1, chunked=False)[0], 120)
        allowed = flood(port, LARGEST - 1, chunked=False)[0]
        assert allowed in ((200,) if mode == "open" else (0, 412))
        before = peak(server.pid)
        for chunked in (False, True):
            status, sent = flood(port, 700 << 20, chunked=chunked)
            assert status in (0, 413 if mode == "open" else 412)
            assert sent < 64 << 20
        rise = peak(server.pid) - before
        assert rise < 2 * LARGEST
        figure("MB more memory in a flood of 700 MB", rise / 1e6, by="most")
    finally:
        server.terminate()
        server.wait(30)
