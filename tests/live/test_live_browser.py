"""The live page in a real browser: it gains rounds, shows names as text, and asks nobody else."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coterie.live import listening
from coterie.live.server import Server
from tests.browser import Seen, needed, opened
from tests.recorded import START, begin, happen, measure

pytestmark = [pytest.mark.slow, needed]
LONG = 90_000  # milliseconds: a busy machine must not make a test fail
SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>"
NAMES = ["a", SCRIPT, "c", "d"]


@contextmanager
def served(folder: Path) -> Iterator[str]:
    view = listening()
    with Server(folder, view.socket, view.token) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield view.address
        server.shutdown()
        thread.join()


def until(seen: Seen, selector: str) -> None:
    seen.page.locator(selector).first.wait_for(state="attached", timeout=LONG)


def curve_end(seen: Seen) -> int | None:
    """The last round of the curve as it is drawn."""
    plot = "document.querySelector('[data-chart=accuracy] .plot')"
    mean = f"{plot}.data?.find((trace) => trace.name === 'mean')?.x.at(-1)"
    end: int | None = seen.page.evaluate(f"() => {mean}")
    return end


def clean(seen: Seen, address: str) -> None:
    """No complaint, no dialog, and no request to anybody else."""
    assert seen.errors == []
    assert seen.dialogs == []
    home = address.split("/?")[0]
    assert [
        url for url in seen.requests if not url.startswith((f"{home}/", "data:", "blob:"))
    ] == []


def test_the_page_gains_a_round_while_the_run_is_going(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "coterie", "run", "--method", "fedclust", "--live", "--out", "r"]
    words += ["--partition", "rotation", "--clients", "8", "--model", "mclr", "--rounds", "2000"]
    said = tmp_path / "said"
    with open(said, "w") as file:
        run = subprocess.Popen(words, cwd=tmp_path, stderr=file, stdout=subprocess.DEVNULL)
    try:
        while not (found := re.search(r"http://\S+", said.read_text())):
            assert run.poll() is None, said.read_text()
            time.sleep(0.1)
        with opened(found[0]) as seen:
            until(seen, "#state[data-state=running]")
            until(seen, "[data-chart=accuracy] .plot[data-drawn] .js-line")
            first = int(seen.page.locator("#round").get_attribute("data-at"))
            drawn = int(seen.page.locator("html").get_attribute("data-round"))
            end = time.monotonic() + LONG / 1000
            while int(seen.page.locator("html").get_attribute("data-round")) <= drawn:
                assert time.monotonic() < end, "no round was added"
                time.sleep(0.2)
            assert int(seen.page.locator("#round").get_attribute("data-at")) > first
            assert seen.page.locator("#grid button").count() == 8
            assert seen.page.locator("[data-chart=distances] .heatmaplayer image").count() == 1
            clean(seen, found[0])
            run.send_signal(signal.SIGKILL)
            run.wait()
            until(seen, "#state[data-state=stopped]")
    finally:
        run.kill()
        run.wait()


def test_a_client_called_script_stays_text(tmp_path: Path) -> None:
    folder = begin(tmp_path / "<b>run")
    happen(folder, {**START, "method": SCRIPT})
    for t in range(3):
        measure(folder, t, NAMES)
    happen(folder, {"event": "rejected", "round": 2, "client": SCRIPT, "why": SCRIPT})
    happen(folder, {"event": "warning", "text": SCRIPT})
    with served(folder) as address, opened(address) as seen:
        until(seen, "[data-chart=accuracy] .plot[data-drawn]")
        seen.page.locator("#grid button").nth(1).click()
        until(seen, "#one .plot[data-drawn]")
        assert seen.page.locator("#who").inner_text() == f"Client {SCRIPT}"
        assert SCRIPT in seen.page.locator("#feed .warning").first.inner_text()
        assert SCRIPT in seen.page.locator("#hers li").first.inner_text()
        assert "alert(1)" in seen.page.locator("#one .legend").text_content()
        assert seen.page.locator("body script, main img, main b").count() == 0
        clean(seen, address)


def test_a_resume_is_told_and_filters_hide(tmp_path: Path) -> None:
    folder = begin(tmp_path / "run")
    happen(folder, START)
    measure(folder, 0, NAMES)
    (folder / ".lock").write_text(f"process {os.getpid()} on {os.uname().nodename}")
    with served(folder) as address, opened(address, "dark") as seen:
        until(seen, "#state[data-state=running]")
        happen(folder, {**START, "event": "resume", "round": 0})
        measure(folder, 1, NAMES)
        until(seen, "#round[data-at='1']")
        seen.page.get_by_text("running, resumed at 0").wait_for(timeout=LONG)
        end = time.monotonic() + LONG / 1000
        while curve_end(seen) != 1:
            assert time.monotonic() < end, "the curve trails the header"
            time.sleep(0.1)
        assert "(" not in seen.page.locator("#feed .start").inner_text(), "a repr is for nobody"
        assert seen.page.locator("#feed .round").count() == 2
        seen.page.locator(".filters input[value=round]").uncheck()
        assert seen.page.locator("#feed .round").count() == 0
        assert seen.page.locator("#feed .resume").count() == 1
        happen(folder, {"event": "done", "seconds": 1.0})
        until(seen, "#state[data-state=done]")
        until(seen, "[data-chart=river] .plot[data-drawn]")
        clean(seen, address)
