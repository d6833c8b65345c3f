"""The live view: who may look, what follows a growing file, and that nothing can be changed."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from coterie.core.errors import ConfigError
from coterie.live import View, beside, listening
from coterie.live.server import Server, Tail
from coterie.runs.reading import run_state
from tests.recorded import ROUND, START, begin, happen

RUN = [
    "run",
    "--model",
    "mclr",
    "--partition",
    "rotation",
    "--clients",
    "8",
    "--method",
    "fedclust",
]


class Visitor:
    """Somebody at the door, with or without the token."""

    def __init__(self, view: View) -> None:
        self.port, self.token = view.socket.getsockname()[1], view.token

    def ask(
        self, path: str, *, verb: str = "GET", headers: dict[str, str] | None = None
    ) -> tuple[int, str, http.client.HTTPMessage]:
        """A request exactly as given; `{t}` in the path is the token."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        line.putrequest(verb, path.replace("{t}", self.token), skip_host="Host" in (headers or {}))
        for name, value in (headers or {}).items():
            line.putheader(name, value)
        line.endheaders()
        answer = line.getresponse()
        text = answer.read().decode()
        line.close()
        return answer.status, text, answer.headers

    def listen(self, last: int | None = None) -> Stream:
        """The events."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        line.request(
            "GET",
            f"/events?t={self.token}",
            headers={} if last is None else {"Last-Event-ID": str(last)},
        )
        return Stream(line)


class Stream:
    """Server-sent events as they come: (event, id, data)."""

    def __init__(self, line: http.client.HTTPConnection) -> None:
        self.line, self.answer = line, line.getresponse()

    def next(self, kind: str = "log") -> tuple[int, str]:
        """The next message of a kind: where it ends in the file, and what it says."""
        while True:
            found: dict[str, str] = {}
            while (text := self.answer.readline().decode()) not in ("\n", ""):
                name, _, value = text.rstrip("\n").partition(": ")
                found[name] = value
            assert found, "the stream ended"
            if found.get("event") == kind:
                return int(found.get("id", 0)), found["data"]

    def close(self) -> None:
        """Go away."""
        self.answer.close()
        self.line.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return begin(tmp_path / "run")


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    view = listening()
    with Server(folder, view.socket, view.token) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def visitor(server: Server) -> Visitor:
    return Visitor(View(server.socket, server.token))


ROUTES = ["/", "/view.css", "/view.js", "/plotly.js", "/figures", "/events"]


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    "token", ["", "?t=", "?t=wrong", "?t=%00", "?T={t}", "?t={t}x", "?t=%C3%A9"]
)
@pytest.mark.row(30, counts="hostile requests and names")
def test_without_the_token_nothing_is_shown(visitor: Visitor, path: str, token: str) -> None:
    code, text, _ = visitor.ask(path + token)
    assert code == 403
    assert len(text) < 100


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "", "[::1]"])
@pytest.mark.row(30, counts="hostile requests and names")
def test_another_host_is_refused_even_with_the_token(
    visitor: Visitor, path: str, host: str
) -> None:
    named = {"Host": host.replace("{port}", str(visitor.port))}
    assert visitor.ask(f"{path}?t={{t}}", headers=named)[0] == 403


@pytest.mark.parametrize("verb", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
@pytest.mark.row(30, counts="hostile requests and names")
def test_only_reading_is_possible(visitor: Visitor, verb: str, folder: Path) -> None:
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    code, _, headers = visitor.ask("/?t={t}", verb=verb)
    assert (code, headers["Allow"]) == (405, "GET, HEAD")
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/assets/live.js",
        "/run.toml",
        "/events.jsonl",
        "/view.js/../run.toml",
        "/\\..\\run.toml",
        "http://evil.example/",
        "/client",
    ],
)
@pytest.mark.row(30, counts="hostile requests and names")
def test_there_is_nothing_but_the_routes(visitor: Visitor, path: str) -> None:
    code, text, _ = visitor.ask(f"{path}?t={{t}}")
    assert code == (
        403 if path.startswith("http") else 404
    )  # a proxy is asked: the host is not ours
    assert "root:" not in text
    assert "seed" not in text


@pytest.mark.parametrize("number", ["-1", "9999", "x", "1e3", "²", "0/../1", "9" * 5000])
@pytest.mark.row(30, counts="hostile requests and names")
def test_a_client_that_is_not_there(visitor: Visitor, number: str) -> None:
    from urllib.parse import quote

    assert visitor.ask(f"/client?i={quote(number)}&t={{t}}")[0] == 404


@pytest.mark.row(30, counts="hostile requests and names")
def test_every_answer_carries_the_policy(visitor: Visitor) -> None:
    for path in ("/?t={t}", "/figures?t={t}", "/nothing?t={t}", "/?t=no"):
        _, _, headers = visitor.ask(path)
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe-eval" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.row(30, counts="hostile requests and names")
def test_it_listens_on_this_machine_alone(visitor: Visitor) -> None:
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        address, port = line.split()[1].split(":")
        if int(port, 16) == visitor.port and line.split()[3] == "0A":
            assert address == "0100007F"
            return
    pytest.fail("nobody listens")


def test_a_port_that_is_taken_is_told() -> None:
    taken = listening()
    with pytest.raises(ConfigError, match="cannot be used") as caught:
        listening(taken.socket.getsockname()[1])
    assert caught.value.code == "C046"
    taken.socket.close()


@pytest.mark.row(30, counts="hostile requests and names")
def test_two_views_have_two_tokens() -> None:
    views = [listening(), listening()]
    assert len({v.token for v in views}) == 2
    assert min(len(v.token) for v in views) >= 20
    for v in views:
        v.socket.close()


@pytest.mark.row(30, counts="hostile requests and names")
def test_the_page_names_the_run_as_text(tmp_path: Path) -> None:
    from coterie.live.views import Views

    page = Views(begin(tmp_path / "<img src=x onerror=alert(1)>")).page("token")
    assert "<img" not in page
    assert "&lt;img src=x" in page


def test_a_head_has_no_body(visitor: Visitor) -> None:
    code, text, headers = visitor.ask("/?t={t}", verb="HEAD")
    assert (code, text) == (200, "")
    assert int(headers["Content-Length"]) > 500
    assert visitor.ask("/events?t={t}", verb="HEAD")[:2] == (200, "")


# -- events --


def test_the_stream_follows_a_growing_file(visitor: Visitor, folder: Path) -> None:
    happen(folder, START)
    stream = visitor.listen()
    assert json.loads(stream.next()[1])["event"] == "start"
    for t in range(3):
        happen(folder, {**ROUND, "round": t})
        assert json.loads(stream.next()[1])["round"] == t
    stream.close()


def test_a_page_that_comes_back_goes_on_where_it_was(visitor: Visitor, folder: Path) -> None:
    for t in range(4):
        happen(folder, {**ROUND, "round": t})
    stream = visitor.listen()
    stream.next()
    at, _ = stream.next()
    stream.close()
    again = visitor.listen(at)
    assert json.loads(again.next()[1])["round"] == 2
    again.close()


def test_another_file_is_read_from_its_beginning(visitor: Visitor, folder: Path) -> None:
    for t in range(4):
        happen(folder, {**ROUND, "round": t})
    stream = visitor.listen()
    for _ in range(4):
        stream.next()
    (folder / "events.jsonl").unlink()
    happen(folder, {**START, "method": "another"})
    stream.next("again")
    assert json.loads(stream.next()[1])["method"] == "another"
    stream.close()


def test_a_half_written_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    tail = Tail(path)
    assert list(tail.read()) == []
    path.write_text('{"a": 1}\n{"b"')
    assert [line.text for line in tail.read()] == ['{"a": 1}']
    path.write_text('{"a": 1}\n')  # a resume cuts off what a crash left
    assert list(tail.read()) == []
    assert not tail.again
    path.write_text('{"a": 1}\n{"c": 3}\n')
    assert [line.text for line in tail.read()] == ['{"c": 3}']


def test_a_place_that_is_no_longer_the_end_of_a_line_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"a": 1}\n{"b": 2}\n')
    for at in (3, 10_000):
        tail = Tail(path, at)
        assert len(list(tail.read())) == 2
        assert tail.again


def test_a_page_that_goes_away_is_forgotten(visitor: Visitor, server: Server, folder: Path) -> None:
    happen(folder, START)
    stream = visitor.listen()
    stream.next()
    assert server.watchers == 1
    stream.close()
    for t in range(100):
        happen(folder, {**ROUND, "round": t})
        if server.watchers == 0:
            break
        time.sleep(0.1)
    assert server.watchers == 0


# -- how a run is --


def hold(folder: Path, pid: int) -> None:
    (folder / ".lock").write_text(f"process {pid} on {socket.gethostname()}")


def test_the_state_of_a_run(tmp_path: Path) -> None:
    assert run_state(tmp_path / "none") == "waiting"
    folder = begin(tmp_path / "run")
    hold(folder, os.getpid())
    happen(folder, START)
    assert run_state(folder) == "running"
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    hold(folder, gone.pid)
    assert run_state(folder) == "stopped"
    happen(folder, {"event": "done", "seconds": 1.0})
    happen(folder, {"event": "warning", "text": "a tracker failed"})
    assert run_state(folder) == "done"
    happen(folder, {**START, "event": "resume"})
    hold(folder, os.getpid())
    assert run_state(folder) == "running"


def test_looking_takes_no_lock(folder: Path, visitor: Visitor) -> None:
    from coterie.runs.records import RunFolder

    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            run_state(folder)

    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(200):
        with RunFolder(folder):
            pass
    stop.set()
    thread.join()


def wait(until: Callable[[], Any], seconds: float = 60) -> Any:
    """What becomes true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := until():
            return found
        time.sleep(0.1)
    raise AssertionError("it never came")


@pytest.mark.slow
def test_the_view_beside_a_process_ends_with_it(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from coterie.live import beside\n"
        "with beside(Path('run')) as address:\n"
        "    print(address, flush=True); time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout
    port = int(parent.stdout.readline().split("/")[2].split(":")[1])
    with socket.create_connection(("127.0.0.1", port)):
        pass
    parent.kill()
    parent.wait()
    parent.stdout.close()

    def closed() -> bool:
        with socket.socket() as line:
            return line.connect_ex(("127.0.0.1", port)) != 0

    wait(closed)


@pytest.mark.slow
@pytest.mark.row(30, counts="hostile requests and names")
def test_the_token_is_not_seen_in_the_list_of_processes(tmp_path: Path) -> None:
    with beside(tmp_path / "run") as address:
        token = address.split("t=")[1]
        seen: list[bytes] = []

        def listed() -> bool:
            """Whether the view is among them: a process has no words for a moment as it starts."""
            seen.clear()
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    seen.append(path.read_bytes())
            return any(b"coterie.live" in words for words in seen)

        wait(listed)
        assert not any(token.encode() in words for words in seen)


@pytest.mark.slow
def test_the_figures_follow_a_run_and_its_resume(tmp_path: Path) -> None:
    out = str(tmp_path / "r")
    words = [sys.executable, "-m", "coterie"]
    subprocess.run([*words, *RUN, "--rounds", "2", "--out", out, "--quiet"], check=True)
    view = listening()
    with Server(Path(out), view.socket, view.token) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        visitor = Visitor(view)

        def rounds() -> int:
            found = json.loads(visitor.ask("/figures?t={t}")[1])
            return int(max(found["charts"]["accuracy"]["data"][-1]["x"]))

        assert rounds() == 2
        before = visitor.ask("/figures?t={t}")[1]
        assert visitor.ask("/figures?t={t}")[1] == before
        subprocess.run([*words, "resume", out, "--rounds", "4", "--quiet"], check=True)
        assert rounds() == 4
        found = json.loads(visitor.ask("/figures?t={t}")[1])
        assert len(found["about"]["clients"]) == 8
        assert found["charts"]["distances"]["data"]
        curve = json.loads(visitor.ask("/client?i=3&t={t}")[1])
        assert len(curve["data"][-1]["x"]) == 5
        server.shutdown()
        thread.join()
