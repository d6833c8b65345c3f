"""Workers that die or freeze: nothing waits for them for ever, and nothing of it is silent."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import coterie as ct
from coterie.core.client import Client
from coterie.core.layout import Layout
from coterie.core.types import Reply, Task
from coterie.engines.workers import processes
from coterie.tasks.train import Train
from tests.engines.test_engine import everybody
from tests.tiny import clients, federation, network, pooled

SOLVER = ct.Solver(lr=0.1, batch=8)


@dataclass(frozen=True)
class Freeze(Task):
    """Stops the process it runs in, once: as a debugger, or a full swap, does."""

    home: str

    def __call__(
        self,
        client: Client,
        models: Tensor,
        sent: Mapping[str, Tensor],
        layout: Layout,
        rng: torch.Generator,
    ) -> Reply:
        mark = Path(self.home) / "frozen"
        if client.name == "4" and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGSTOP)
        return Train(SOLVER)(client, models, sent, layout, rng)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "LOOK", 0.05)
    monkeypatch.setattr(processes, "PATIENCE", 20)


@pytest.mark.row(5)
def test_what_a_frozen_worker_was_at_is_done_by_another(tmp_path: Path, impatient: None) -> None:
    alone = federation()
    expected = alone.at(0).ask(alone.clients, Train(SOLVER), everybody(alone)).values
    with pooled(federation(), 2) as pool:
        values = pool.at(0).ask(pool.clients, Freeze(str(tmp_path)), everybody(pool)).values
        (told,) = pool.ledger[-1].mended
    assert torch.equal(values, expected)
    assert told == "a worker was replaced: it computed nothing for 1 seconds at client 4"


def test_a_worker_that_computes_is_left_alone_however_long_it_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "LOOK", 0.05)
    monkeypatch.setattr(processes, "PATIENCE", 10)
    with pooled(federation(), 2) as pool:
        pool.at(0).ask(pool.clients[:2], Busy(0.7), everybody(pool))
        assert pool.ledger[-1].mended == ()


@dataclass(frozen=True)
class Sleep(Task):
    """Waits for a long time at one client, once, and says in which process."""

    home: str

    def __call__(
        self,
        client: Client,
        models: Tensor,
        sent: Mapping[str, Tensor],
        layout: Layout,
        rng: torch.Generator,
    ) -> Reply:
        mark = Path(self.home) / "asleep"
        if client.name == "4" and not mark.exists():
            mark.write_text(str(os.getpid()))
            time.sleep(600)
        return Train(SOLVER)(client, models, sent, layout, rng)


@pytest.mark.row(5)
def test_a_worker_that_is_killed_at_work_is_noticed_at_once(
    tmp_path: Path, figure: Callable[..., None]
) -> None:
    mark, killed = tmp_path / "asleep", [0.0]

    def kill() -> None:
        while not (mark.exists() and mark.read_text()):
            time.sleep(0.01)
        killed[0] = time.monotonic()
        os.kill(int(mark.read_text()), signal.SIGKILL)

    alone = federation()
    expected = alone.at(0).ask(alone.clients, Train(SOLVER), everybody(alone)).values
    with pooled(federation(), 2) as pool:
        killer = threading.Thread(target=kill)
        pool.backend.start(pool.setting)
        killer.start()
        values = pool.at(0).ask(pool.clients, Sleep(str(tmp_path)), everybody(pool)).values
        seconds = time.monotonic() - killed[0]
        killer.join()
        (told,) = pool.ledger[-1].mended
    assert torch.equal(values, expected)
    assert "killed by SIGKILL at client" in told
    assert seconds < 10  # far less; a busy machine must not make a test fail
    figure("seconds until its work was done by another", seconds, by="most")


@dataclass(frozen=True)
class Busy(Task):
    """Computes for some seconds and says nothing meanwhile."""

    seconds: float

    def __call__(
        self,
        client: Client,
        models: Tensor,
        sent: Mapping[str, Tensor],
        layout: Layout,
        rng: torch.Generator,
    ) -> Reply:
        until = time.process_time() + self.seconds
        while time.process_time() < until:
            pass
        return Reply(models)


def test_a_frozen_end_of_a_pipe_blocks_no_reader_and_no_writer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "PATIENCE", 20)
    monkeypatch.setattr(processes, "LOOK", 0.01)  # a read or a write has PATIENCE looks
    with pooled(federation(), 2) as pool:
        pool.backend.start(pool.setting)
        worker: Any = pool.backend.workers[0]
        os.kill(worker.process.pid, signal.SIGSTOP)
        with pytest.raises(BlockingIOError):
            worker.pipe.send(b"x" * 10**7)
        with pytest.raises(BlockingIOError):
            worker.pipe.recv()


@pytest.mark.row(5)
def test_a_killed_worker_is_an_event_of_the_run_and_on_its_page(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []

    def hear(event: dict[str, Any]) -> None:
        told.append(event)
        if event["event"] == "round" and event["round"] == 1:
            for child in children():
                os.kill(child, signal.SIGKILL)

    people = ct.Population.of(clients(4), classes=4)
    out = tmp_path / "r"
    ct.fit(
        ct.FedAvg(SOLVER),
        people,
        network(),
        rounds=2,
        engine="pool",
        workers=2,
        out=out,
        on_event=hear,
    )
    events = [e for e in told if e["event"] == "replaced"]
    assert len(events) == 2
    assert events[0]["round"] == 2
    assert "killed by SIGKILL" in events[0]["text"]
    assert "2 workers were replaced" in (out / "report.html").read_text()
    assert '"event": "replaced"' in (out / "events.jsonl").read_text()


def children() -> list[int]:
    """The processes that this one has started and not seen end."""
    tasks = Path("/proc/self/task")
    return [int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split()]
