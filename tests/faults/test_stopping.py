"""Ctrl-C and SIGTERM at any moment: a word and 130, never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from coterie.core import stopping

SLOW = """
import os, sys, time
sys.path.insert(0, {home!r})
from coterie.core import stopping
stopping.heed()
{begun}
try:
    import slow
    os.write(1, b"imported\\n")  # whole, or not at all
    time.sleep(60)
except KeyboardInterrupt:
    print("in good order", flush=True)
"""
MODULE = """
import time
print("importing", flush=True)
until = time.monotonic() + {seconds}
while time.monotonic() < until:
    try:
        time.sleep(0.01)
    except KeyboardInterrupt:
        print("half a module", flush=True)
"""


def stopped(tmp_path: Path, number: int, *, begun: bool, seconds: float = 0.4) -> tuple[str, Any]:
    """What a program says that is stopped while it imports a module, and how it ends."""
    (tmp_path / "slow.py").write_text(MODULE.format(seconds=seconds))
    body = "kept = stopping.begun()\nkept.__enter__()" if begun else ""
    script = SLOW.format(home=str(tmp_path), begun=body)
    pipe = subprocess.PIPE
    child = subprocess.Popen([sys.executable, "-c", script], stdout=pipe, stderr=pipe, text=True)
    assert child.stdout
    assert child.stdout.readline() == "importing\n"
    child.send_signal(number)
    out, err = child.communicate(timeout=30)
    return out + err, child.returncode


@pytest.mark.parametrize("number", stopping.SIGNALS)
@pytest.mark.row(3)
def test_while_a_program_starts_it_ends_at_once(number: int, tmp_path: Path) -> None:
    said, code = stopped(tmp_path, number, begun=False, seconds=20)
    assert code == stopping.INTERRUPTED
    assert said == "\ninterrupted\n"


@pytest.mark.row(3)
def test_once_it_has_begun_an_import_is_brought_to_its_end_first(tmp_path: Path) -> None:
    said, code = stopped(tmp_path, signal.SIGINT, begun=True)
    assert (said.removeprefix("imported\n"), code) == ("in good order\n", 0)


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.row(3)
def test_no_exception_is_raised_in_a_text_that_is_executed(begun: bool, tmp_path: Path) -> None:
    # Python would end by the signal, though the exception is caught.
    text = MODULE.format(seconds=0.4)
    script = SLOW.format(home="", begun="kept = stopping.begun()\nkept.__enter__()" * begun)
    file = tmp_path / "script.py"
    file.write_text(script.replace("import slow", f"exec({text!r})"))
    pipe = subprocess.PIPE
    child = subprocess.Popen([sys.executable, str(file)], stdout=pipe, stderr=pipe, text=True)
    assert child.stdout
    assert child.stdout.readline() == "importing\n"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    said = (out + err).removeprefix("imported\n")  # or it came just before that was said
    assert (said, child.returncode) == ("in good order\n", 0)


@pytest.mark.row(3)
def test_a_program_that_is_itself_a_text_stops_where_it_is(tmp_path: Path) -> None:
    # As in a debugger, or in a worker of pytest: the exception does not leave that text.
    script = SLOW.format(home="", begun="").replace("import slow", "pass")
    pipe = subprocess.PIPE
    words = [sys.executable, "-c", f"exec({script!r})"]
    child = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True)
    assert child.stdout
    assert child.stdout.readline() == "imported\n"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert (out + err, child.returncode) == ("in good order\n", 0)


@pytest.mark.row(3)
def test_no_exception_is_raised_where_pydantic_would_wrap_it(tmp_path: Path) -> None:
    script = (
        "import os, time\nfrom typing import Annotated\n"
        "from pydantic import BeforeValidator, TypeAdapter\n"
        "from coterie.core import stopping\nstopping.heed()\n"
        "def slow(x):\n    print('here', flush=True)\n    time.sleep(0.4)\n    return x\n"
        "try:\n    TypeAdapter(Annotated[int, BeforeValidator(slow)]).validate_python(3)\n"
        "    os.write(1, b'valid\\n')\n    time.sleep(60)\n"  # whole, or not at all
        "except KeyboardInterrupt:\n    print('in good order', flush=True)\n"
    )
    pipe = subprocess.PIPE
    child = subprocess.Popen([sys.executable, "-c", script], stdout=pipe, stderr=pipe, text=True)
    assert child.stdout
    assert child.stdout.readline() == "here\n"
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=30)[0].removeprefix("valid\n") == "in good order\n"


def test_when_all_is_done_a_signal_changes_nothing_but_the_end(tmp_path: Path) -> None:
    script = (
        "import time\nfrom coterie.core import stopping\nstopping.heed()\n"
        "stopping.leave_with(3)\nprint('x', flush=True)\ntime.sleep(60)\n"
    )
    pipe = subprocess.PIPE
    child = subprocess.Popen([sys.executable, "-c", script], stdout=pipe, stderr=pipe, text=True)
    assert child.stdout
    child.stdout.readline()
    child.send_signal(signal.SIGTERM)
    assert child.communicate(timeout=30)[1] == ""
    assert child.returncode == 3


def test_a_process_that_is_started_meanwhile_hears_nothing_yet() -> None:
    with stopping.deaf():
        child = os.fork()
        if not child:
            os.kill(os.getpid(), signal.SIGINT)
            pending = signal.SIGINT in signal.sigpending()
            os._exit(0 if pending else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.06, 0.12, 0.2, 0.35, 0.6, 1.0, 1.6])
@pytest.mark.row(3)
def test_a_run_that_is_stopped_while_it_starts_leaves_no_traceback(
    after: float, tmp_path: Path
) -> None:
    words = [
        sys.executable,
        "-m",
        "coterie",
        "run",
        "--rounds",
        "200",
        "--out",
        str(tmp_path / "r"),
    ]
    pipe = subprocess.PIPE
    child = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, cwd=tmp_path)
    heeds(child.pid)
    time.sleep(after)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == stopping.INTERRUPTED
    assert "Traceback" not in err
    assert "Error" not in err


def heeds(pid: int) -> None:
    """Wait until a process has handlers of its own; Python's own start cannot be made deaf."""
    bit = 1 << (signal.SIGTERM - 1)
    until = time.monotonic() + 30
    while time.monotonic() < until:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt"))
        if caught & bit:
            return
        time.sleep(0.002)
    raise TimeoutError
