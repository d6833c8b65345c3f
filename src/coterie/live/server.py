"""The server: a few fixed routes, read only, for whoever has the token.

Pages follow events.jsonl: whole lines as they come, from where a reader was.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from coterie.live.views import Views
from coterie.runs.reading import run_state

POLL = 0.25  # seconds between two looks at the events
QUIET = 10.0  # seconds after which a comment keeps a silent connection open
WATCHERS = 16  # pages at once
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
SCRIPT, STYLE, PAGE, JSON = "text/javascript", "text/css", "text/html", "application/json"


class Line(NamedTuple):
    """One event as it was written, and where in the file it ends."""

    text: str
    end: int


class Tail:
    """A file that grows. A reader that was at `at` goes on there, if that is still the end of a
    line; a file that became shorter, or another one, is read from its beginning.
    """

    def __init__(self, path: Path, at: int = 0) -> None:
        self.path, self.at = path, at
        self.file: int | None = None  # which file it was: its inode
        self.again = False  # what was read before is void; whoever heard it sets it back

    def read(self) -> Iterator[Line]:
        """Every whole line since the last time."""
        try:
            with open(self.path, "rb") as file:
                found = os.fstat(file.fileno())
                moved = self.file is not None and found.st_ino != self.file
                if moved or found.st_size < self.at or not self.at_a_line(file.fileno()):
                    self.at, self.again = 0, True
                self.file = found.st_ino
                if found.st_size == self.at:
                    return
                file.seek(self.at)
                data = file.read()
        except FileNotFoundError:
            self.again, self.at = self.again or self.at > 0, 0
            return
        for line in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
            self.at += len(line)
            yield Line(line.decode(errors="replace").strip(), self.at)

    def at_a_line(self, file: int) -> bool:
        """Whether the place we were at is still the end of a line."""
        return self.at == 0 or os.pread(file, 1, self.at - 1) == b"\n"


class Server(ThreadingHTTPServer):
    """The view of one run's folder on a socket that listens already."""

    daemon_threads = True

    def __init__(self, folder: Path, listening: socket.socket, token: str) -> None:
        address = listening.getsockname()
        super().__init__(address, Request, bind_and_activate=False)
        self.socket.close()
        self.socket, self.folder, self.token = listening, folder, token
        self.hosts = {f"127.0.0.1:{address[1]}", f"localhost:{address[1]}"}
        self.views = Views(folder)
        self.watchers = 0

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A page that went away in the middle of an answer is nobody's trouble."""


class Request(BaseHTTPRequestHandler):
    """Answers one request: the address is checked first, then a route is chosen."""

    server: Server
    server_version, sys_version = "coterie", ""
    timeout = 30  # a connection that says nothing is dropped

    def do_GET(self) -> None:
        """Answer what may be read, to those who may read it."""
        path, asked = self.allowed()
        if path == "/events":
            self.follow()
        elif path is not None:
            self.answer(path, asked)

    def do_HEAD(self) -> None:
        """Answer a HEAD as a GET, without the body."""
        self.do_GET()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):  # every other verb: there is nothing to write to here
            return self.refuse
        raise AttributeError(name)

    def refuse(self) -> None:
        """Say what may be done instead."""
        self.reply(405, "only GET and HEAD", headers={"Allow": "GET, HEAD"})

    def allowed(self) -> tuple[str | None, dict[str, list[str]]]:
        """The path and what was asked; None if the answer was given: not from here, or no token."""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or hosts[0].lower() not in self.server.hosts:
            self.reply(403, "this is not the host you are looking for")  # DNS rebinding
            return None, {}
        try:
            url = urlsplit(self.path)
            asked = parse_qs(url.query, max_num_fields=8)
        except ValueError:
            self.reply(400, "not an address")
            return None, {}
        if url.scheme or url.netloc:
            self.reply(404, "this is no proxy")
            return None, {}
        given = asked.get("t", [""])[0]
        if not hmac.compare_digest(given.encode(), self.server.token.encode()):
            self.reply(403, "the address with its token was printed where the view was started")
            return None, {}
        return url.path, asked

    def answer(self, path: str, asked: dict[str, list[str]]) -> None:
        """The routes; anything else does not exist."""
        views = self.server.views
        match path:
            case "/":
                self.reply(200, views.page(self.server.token), PAGE)
            case "/view.css":
                self.reply(200, views.style(), STYLE)
            case "/view.js":
                self.reply(200, (files("coterie.live") / "assets" / "live.js").read_text(), SCRIPT)
            case "/plotly.js":
                self.reply(200, views.plotly(), SCRIPT, {"Cache-Control": "private, max-age=3600"})
            case "/figures":
                self.reply(200, views.figures(), JSON)
            case "/client":
                number = whole(asked.get("i", [""])[0])
                found = None if number is None else views.client(number)
                self.reply(200 if found else 404, found or "no such client", JSON)
            case _:
                self.reply(404, "nothing here")

    def reply(
        self, code: int, text: str, kind: str = "text/plain", headers: dict[str, str] | None = None
    ) -> None:
        """Send an answer as a whole: status, headers and text."""
        body = text.encode()
        self.head(code, kind, {"Content-Length": str(len(body)), **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(body)

    def head(self, code: int, kind: str, headers: dict[str, str]) -> None:
        """The status and every header."""
        self.send_response(code)
        shown = {"Content-Type": f"{kind}; charset=utf-8", **HEADERS, **headers}
        for name, value in shown.items():
            self.send_header(name, value)
        self.end_headers()

    def follow(self) -> None:
        """Server-sent events: every line of events.jsonl, and how the run is, as it changes."""
        if self.server.watchers >= WATCHERS:
            self.reply(503, "too many pages are open")
            return
        self.head(200, "text/event-stream", {"Connection": "close"})
        if self.command == "HEAD":
            return
        last = whole(self.headers.get("Last-Event-ID", ""))
        tail = Tail(self.server.folder / "events.jsonl", last or 0)
        self.server.watchers += 1
        try:
            self.send_all(tail)
        except OSError:
            pass  # the page was closed
        finally:
            self.server.watchers -= 1

    def send_all(self, tail: Tail) -> None:
        """Send until the page is closed."""
        told, heard = "", time.monotonic()
        while True:
            message = []
            for line in tail.read():
                if tail.again:
                    message.append("event: again\ndata: \n\n")
                    tail.again = False
                message.append(f"id: {line.end}\nevent: log\ndata: {line.text}\n\n")
            now = json.dumps({"state": run_state(self.server.folder)})
            if now != told:
                message.append(f"event: state\ndata: {now}\n\n")
            if not message and time.monotonic() - heard > QUIET:
                message.append(": still here\n\n")
            if message:
                self.wfile.write("".join(message).encode())
                told, heard = now, time.monotonic()
            time.sleep(POLL)

    def log_message(self, format: str, *args: Any) -> None:
        """The library prints nothing."""


def whole(text: str) -> int | None:
    """A number of a few digits, or nothing.

    >>> whole("12"), whole("-1"), whole("9" * 5000)
    (12, None, None)
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None
