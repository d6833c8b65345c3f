"""No command reaches for another machine: every connection and every look-up is heard."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coterie.cli.main import call
from tests.faults.commands import configured

EVENTS = {
    "socket.connect": 1,
    "socket.getaddrinfo": 0,
    "socket.gethostbyname": 0,
    "socket.sendto": 1,
}
OURS = ("127.0.0.1", "::1", "localhost", "0.0.0.0")
_heard: list[str] | None = None
_hooked: list[bool] = []


def _hook(event: str, about: tuple[object, ...]) -> None:
    if _heard is not None and event in EVENTS:
        _heard.append(f"{event} {about[EVENTS[event]]!r}")


@contextmanager
def hearing() -> Iterator[list[str]]:
    """All that is reached for inside it."""
    global _heard
    if not _hooked:
        _hooked.append(True)
        sys.addaudithook(_hook)
    _heard = []
    try:
        yield _heard
    finally:
        _heard = None


def outside(heard: list[str]) -> list[str]:
    return [x for x in heard if not any(name in x for name in OURS) and "'/" not in x]


def test_the_ear_hears() -> None:
    import socket

    with hearing() as heard, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # nothing is sent: it only chooses an address
    assert outside(heard) == ["socket.connect ('192.0.2.1', 9)"]


@pytest.mark.row(31)
@pytest.mark.slow
def test_no_command_reaches_for_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figure: Callable[..., None]
) -> None:
    monkeypatch.chdir(tmp_path)
    configured({}, tmp_path)
    small = ["small.toml", "train.rounds=1"]
    run = ["--out", "r"]
    commands = {
        "check": ["check", *small],
        "data": ["data", "digits"],
        "inspect": ["inspect", *small],
        "run": ["run", *small, *run],
        "resume": ["resume", "r", "--rounds", "2"],
        "report": ["report", "r"],
        "export": ["export", "r", "--all"],
        "predict": ["predict", "r", "--data", "digits", "--out", "p.csv"],
        "place": ["place", "r", "--data", "digits"],
        "compare": ["compare", *small, "--methods", "fedavg,local", "--seeds", "1", "--out", "c"],
        "newcomers": ["newcomers", *small, "--share", "0.3", "--epochs", "1", "--out", "n"],
        "methods": ["methods"],
        "doctor": ["doctor"],
    }
    for name, words in commands.items():
        with hearing() as heard:
            code = call(words)
        assert code == 0 or name == "doctor", name
        assert outside(heard) == [], name
        figure("commands listened to", 1)


@pytest.mark.row(31)
def test_flowers_programs_are_started_without_telemetry_and_update_checks(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    from coterie.engines.flower.children import Child

    environment = Child("superlink", [], tmp_path).environment
    assert environment["FLWR_TELEMETRY_ENABLED"] == "0"
    assert environment["FLWR_DISABLE_UPDATE_CHECK"] == "1"


@pytest.mark.row(31)
def test_a_ray_of_our_own_reports_no_usage() -> None:
    pytest.importorskip("ray")
    from coterie.engines.ray import PRIVATE

    assert PRIVATE["RAY_USAGE_STATS_ENABLED"] == "0"
