"""The pool answers as the engine inside it would, to the bit, whatever happens to its workers."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from coterie.core.client import Client
from coterie.core.errors import ClientError, ConfigError, DivergedError
from coterie.core.layout import Layout
from coterie.core.loop import evaluate, run
from coterie.core.types import Reply, State, Task
from coterie.data.population import partition
from coterie.engines.front import Front
from coterie.engines.question import Question
from coterie.engines.serial import Serial
from coterie.engines.workers import backend
from coterie.engines.workers.backend import LOADED, Workers, end_helpers, one_thread, take
from coterie.engines.workers.processes import Process
from coterie.engines.workers.shared_memory import SharedBuffer
from coterie.engines.workers.worker import room_for
from coterie.methods import find
from coterie.methods.fedavg import FedAvg
from coterie.models.factory import build
from coterie.runs import checkpoint
from coterie.tasks.optimiser import SGD  # noqa: F401  for what is printed as code
from coterie.tasks.private import Privacy  # noqa: F401  for what is printed as code
from coterie.tasks.schedule import Schedule  # noqa: F401  for what is printed as code
from coterie.tasks.signature import Histogram
from coterie.tasks.solver import Solver
from coterie.tasks.train import Train
from tests.engines.test_engine import Count, Stumble, everybody, poisoned
from tests.tiny import federation, pooled, same

SOLVER = Solver(lr=0.1, batch=8)
METHODS: dict[str, dict[str, Any]] = {
    "local": {},
    "ditto": {},
    "scaffold": {},
    "fedrep": {"head_epochs": 2},
    "ifca": {"clusters": 2},
    "fedclust": {"warmup_epochs": 2},
}


def method(name: str) -> Any:
    return find(name)(solver=SOLVER, fraction=0.6, **METHODS[name])


def remembers_alike(a: Front, b: Front) -> bool:
    return a.memory.keys() == b.memory.keys() and all(
        a.memory[i].keys() == b.memory[i].keys()
        and all(torch.equal(t, b.memory[i][k]) for k, t in a.memory[i].items())
        for i in a.memory
    )


def started(fed: Any) -> Any:
    """The same federation, its workers started before any question."""
    fed.backend.start(fed.setting)
    return fed


# -- the same bits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_a_pool_gives_the_bits_of_the_engine_inside(name: str) -> None:
    alone = federation()
    with pooled(federation(), 2) as pool:
        for a, b in zip(run(method(name), alone, 4), run(method(name), pool, 4), strict=True):
            assert same(a, b)
        assert remembers_alike(alone, pool)
        scores, there = evaluate(method(name), a, alone), evaluate(method(name), b, pool)
    assert torch.equal(scores.accuracy, there.accuracy)
    assert torch.equal(scores.loss, there.loss)
    for expected, got in zip(alone.ledger, pool.ledger, strict=True):
        assert torch.equal(expected.clients, got.clients)
        assert torch.equal(expected.down, got.down)
        assert torch.equal(expected.up, got.up)


def test_clients_whose_data_change_are_asked_as_they_are_in_that_round() -> None:
    def drifting(round: int) -> Front:
        people = partition("digits", f"rotation:0,180+drift:{round},0.5,gradual,2", clients=4)
        net = build("mclr", shape=people.shape, classes=people.classes, seed=0)
        return Front(
            people, Layout(net), classes=people.classes, sizes=people.sizes, names=people.names
        )

    avg = FedAvg(SOLVER)
    *_, alone = run(avg, drifting(2), 4)
    with pooled(drifting(2), 2) as pool:
        *_, there = run(avg, pool, 4)
    *_, never = run(avg, drifting(9), 4)
    assert same(alone, there)
    assert not same(alone, never)


def test_a_run_resumes_in_a_pool_to_the_same_bits(tmp_path: Path) -> None:
    ditto = method("ditto")
    with pooled(federation(), 2) as pool:
        for state in run(ditto, pool, 4):
            checkpoint.save(tmp_path, state, pool.memories(), {}, keep=5)
        end = state
    saved = checkpoint.load(checkpoint.rounds(tmp_path)[2])
    assert saved.state.round == 2
    with pooled(federation(), 3) as again:
        again.restore(saved.memories)
        *_, last = run(ditto, again, 4, saved.state)
    assert same(last, end)
    assert remembers_alike(again, pool)


def test_nobody_is_asked_without_a_worker() -> None:
    pool = pooled(federation(), 2)
    replies = pool.at(0).ask(pool.clients[:0], Train(SOLVER), everybody(pool))
    assert replies.values.shape == (0, pool.layout.size)
    assert not pool.backend.workers


def test_tasks_that_receive_nothing_or_one_row_for_all() -> None:
    alone, pool = federation(), pooled(federation(), 2)
    state = replace(everybody(alone), assign=torch.tensor([0, 0, 0, -1, 0, 0, -1, 0]))
    asked: list[tuple[Tensor, Task, dict[str, Tensor]]] = [
        (pool.clients[2:5], Histogram(classes=4), {}),
        (
            pool.clients[:3],
            Train(replace(SOLVER, prox=0.5)),
            {"anchor": torch.ones(1, pool.layout.size)},
        ),
        (pool.clients[:3], Train(SOLVER), {"epochs": torch.tensor([3, 1, 2])}),
    ]
    for cohort, task, send in asked:
        a, b = (fed.at(0).ask(cohort, task, state, **send) for fed in (alone, pool))
        assert torch.equal(a.values, b.values)
    pool.close()


def test_a_model_of_its_own_for_each_client_reaches_that_client() -> None:
    fed = federation()
    rows = torch.randn(8, fed.layout.size)
    state = State(rows, torch.arange(8).flip(0))
    with pooled(fed, 2) as pool:
        replies = pool.at(0).ask(pool.clients[1::2], Echo(), state)
    assert torch.equal(replies.values, rows.flip(0)[1::2])


@dataclass(frozen=True)
class Echo(Task):
    """What was received."""

    def __call__(
        self,
        client: Client,
        models: Tensor,
        sent: Mapping[str, Tensor],
        layout: Layout,
        rng: torch.Generator,
    ) -> Reply:
        return Reply(models)


def test_memories_stay_here_and_evaluation_writes_none() -> None:
    with pooled(federation(), 2) as pool:
        pool.at(0).ask(pool.clients[:2], Count(), everybody(pool))
        pool.at(0, "evaluate").ask(pool.clients, Count(), everybody(pool))
        times = pool.at(1).ask(pool.clients[:3], Count(), everybody(pool)).values
    assert times.flatten().tolist() == [2, 2, 1]
    assert [int(pool.memory[i]["times"]) for i in range(3)] == [2, 2, 1]


def test_updates_that_are_not_finite_are_left_out_by_name() -> None:
    alone, pool = poisoned(federation(), [2, 5]), pooled(poisoned(federation(), [2, 5]), 2)
    (*_, a), (*_, b) = run(FedAvg(SOLVER), alone, 1), run(FedAvg(SOLVER), pool, 1)
    assert same(a, b)
    assert list(pool.ledger[-1].rejected.items()) == list(alone.ledger[-1].rejected.items())
    pool.close()
    with (
        pooled(poisoned(federation(), list(range(8))), 2) as pool,
        pytest.raises(DivergedError) as error,
    ):
        list(run(FedAvg(SOLVER), pool, 1))
    assert "client 0:" in error.value.where  # the first of them, not the one who was quickest


def test_what_a_worker_does_while_it_is_an_engine_of_another_kind() -> None:
    class Pairs(Serial):
        """Two clients at a time, whose answers show who was with whom."""

        def portions(self, question: Question) -> list[list[int]]:
            return [[j, j + 1] for j in range(0, len(question.cohort), 2)]

        def answer(self, question: Question, places: Any) -> list[Reply]:
            size = question.setting.layout.size
            return [Reply(torch.full((size,), float(sum(places)))) for _ in places]

    with pooled(federation(kind=partial(Front, backend=Pairs())), 2) as pool:
        values = pool.at(0).ask(pool.clients, Train(SOLVER), everybody(pool)).values
    assert values[:, 0].tolist() == [1, 1, 5, 5, 9, 9, 13, 13]


def test_a_parent_with_threads_and_more_than_one_of_torch() -> None:
    code = (
        "import threading, torch; from tests.engines.test_pool import *\n"
        "torch.set_num_threads(1); *_, a = run(FedAvg(SOLVER), federation(), 2)\n"
        "torch.set_num_threads(2); torch.randn(999, 999) @ torch.randn(999, 999)\n"
        "torch.randn(9, 9, requires_grad=True).sum().backward()\n"
        "done = threading.Event(); threading.Thread(target=done.wait, daemon=True).start()\n"
        "*_, b = run(FedAvg(SOLVER), pooled(federation(), 2), 2)\n"
        "assert same(a, b) and torch.get_num_threads() == 2\n"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    subprocess.run(command, check=True, timeout=60, cwd=Path(__file__).parents[2])


@dataclass(frozen=True)
class Threads(Task):
    """How many threads compute on this client."""

    def __call__(
        self,
        client: Client,
        models: Tensor,
        sent: Mapping[str, Tensor],
        layout: Layout,
        rng: torch.Generator,
    ) -> Reply:
        return Reply(torch.tensor(float(torch.get_num_threads())))


def test_each_worker_computes_on_one_thread() -> None:
    try:
        torch.set_num_threads(2)
        with pooled(federation(), 2) as pool:
            threads = pool.at(0).ask(pool.clients, Threads(), everybody(pool)).values
    finally:
        torch.set_num_threads(1)
    assert threads.tolist() == [1] * 8


def test_while_workers_work_no_other_thread_spins_on_their_cores() -> None:
    def helpers() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    ends = hasattr(LOADED, "omp_pause_resource_all")
    try:
        torch.set_num_threads(2)
        torch.ones(10**6).sum()
        awake = helpers() if ends else 0
        with one_thread():
            assert torch.get_num_threads() == 1
            end_helpers()
            until = time.monotonic() + 5
            while ends and helpers() == awake and time.monotonic() < until:
                time.sleep(0.001)
            assert not ends or helpers() < awake
        assert torch.get_num_threads() == 2
        assert torch.ones(10**6).sum() == 10**6
    finally:
        torch.set_num_threads(1)


def test_helpers_are_ended_once_workers_have_something_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    happened: list[str] = []
    give, answer = Process.give, Process.answer

    def giving(worker: Process, *given: Any) -> None:
        happened.append("give")
        give(worker, *given)

    def answering(worker: Process, *given: Any) -> Any:
        happened.append("answer")
        return answer(worker, *given)

    monkeypatch.setattr(Process, "give", giving)
    monkeypatch.setattr(Process, "answer", answering)
    monkeypatch.setattr(backend, "end_helpers", lambda: happened.append("end"))
    with pooled(federation(), 2) as pool:
        list(run(FedAvg(SOLVER), pool, 1))
    assert happened[:4] == ["give", "give", "end", "answer"]
    assert happened.count("end") == 1


@pytest.mark.slow
def test_where_a_fork_is_not_possible_workers_start_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    *_, alone = run(method("ditto"), federation(), 3)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pooled(federation(), 2) as pool:
        *_, there = run(method("ditto"), pool, 3)
        assert pool.backend.workers[0].process._start_method == "spawn"  # type: ignore[attr-defined]
    assert same(alone, there)


# -- what goes wrong -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Die(Task):
    """Kills the worker it runs in, as the system does when memory runs out."""

    home: str  # a folder: each death leaves a file there
    clients: tuple[str, ...] = ()
    times: int = 1

    def __call__(
        self,
        client: Client,
        models: Tensor,
        sent: Mapping[str, Tensor],
        layout: Layout,
        rng: torch.Generator,
    ) -> Reply:
        if client.name in self.clients:
            died = len(list(Path(self.home).glob(f"{client.name}.*")))
            if died < self.times:
                (Path(self.home) / f"{client.name}.{died}").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return Train(SOLVER)(client, models, sent, layout, rng)


@pytest.mark.row(5)
def test_what_a_worker_died_over_is_done_by_another(tmp_path: Path) -> None:
    alone = federation()
    expected = alone.at(0).ask(alone.clients, Die(str(tmp_path)), everybody(alone)).values
    task = Die(str(tmp_path), ("0", "4", "7"), times=2)
    with pooled(federation(), 2) as pool:
        values = pool.at(0).ask(pool.clients, task, everybody(pool)).values
        assert len(list(tmp_path.iterdir())) == 6
        assert torch.equal(values, expected)
        assert torch.equal(pool.at(0).ask(pool.clients, task, everybody(pool)).values, expected)
        assert len(pool.backend.workers) == 2


@pytest.mark.row(5)
def test_a_client_that_no_worker_survives_is_named(tmp_path: Path) -> None:
    task = Die(str(tmp_path), ("4",), times=99)
    with pooled(federation(), 2) as pool:
        with pytest.raises(ClientError, match="3 worker processes died on client 4") as error:
            pool.at(2).ask(pool.clients, task, everybody(pool))
        assert len(list(tmp_path.iterdir())) == 3
        assert error.value.code == "U002"
        assert "round 3, Die; the last one: killed by SIGKILL" in error.value.where
        pool.at(0).ask(pool.clients, Train(SOLVER), everybody(pool))  # the others go on


def test_workers_that_died_between_two_questions_are_replaced() -> None:
    alone = federation()
    with pooled(federation(), 2) as pool:
        started(pool)
        for worker in pool.backend.workers:
            assert worker.process.pid
            os.kill(worker.process.pid, signal.SIGKILL)
        values = pool.at(0).ask(pool.clients, Train(SOLVER), everybody(pool)).values
    assert torch.equal(
        values, alone.at(0).ask(alone.clients, Train(SOLVER), everybody(alone)).values
    )


@pytest.mark.row(25, counts="failures of own code")
def test_a_users_exception_comes_with_the_client_and_the_traceback() -> None:
    with pooled(federation(), 2) as pool:
        with pytest.raises(ClientError, match="RuntimeError on client 3: mat1 and mat2") as error:
            pool.at(4).ask(pool.clients, Stumble(), everybody(pool))
        assert error.value.code == "U001"
        assert "round 5" in error.value.where
        trace = str(error.value.__cause__)
        assert "in __call__" in trace
        assert 'raise RuntimeError("mat1' in trace
        values = pool.at(4).ask(pool.clients[:3], Echo(), everybody(pool)).values
    assert torch.equal(values, pool.layout.initial.expand(3, -1))


@dataclass(frozen=True)
class Refuse(Task):
    """Every client fails; the last ones, who have most data, are asked first."""

    def __call__(
        self,
        client: Client,
        models: Tensor,
        sent: Mapping[str, Tensor],
        layout: Layout,
        rng: torch.Generator,
    ) -> Reply:
        if client.name in ("0", "1"):
            return Reply(models, keep={"was": torch.ones(1)})
        raise ConfigError(f"not {client.name}", code="C032", where="here", fix="that")


def test_who_would_fail_first_alone_fails_first_and_errors_of_ours_stay_what_they_are() -> None:
    alone = federation()
    with pytest.raises(ConfigError) as expected:
        alone.at(0).ask(alone.clients, Refuse(), everybody(alone))
    with pooled(federation(), 3) as pool, pytest.raises(ConfigError, match="not 2") as error:
        pool.at(0).ask(pool.clients, Refuse(), everybody(pool))
    assert str(error.value) == str(expected.value)
    assert error.value.code == "C032"
    assert remembers_alike(alone, pool)


def test_a_question_that_is_interrupted_leaves_no_answer_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = federation()
    with pooled(federation(), 2) as pool:
        started(pool)

        def interrupted(*_: Any) -> Any:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("coterie.engines.workers.processes.wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                pool.at(3).ask(pool.clients, Train(SOLVER), everybody(pool))
        values = pool.at(0).ask(pool.clients[:2], Train(SOLVER), everybody(pool)).values
    assert torch.equal(
        values, alone.at(0).ask(alone.clients[:2], Train(SOLVER), everybody(alone)).values
    )


def test_ctrl_c_does_not_reach_the_workers() -> None:
    with pooled(federation(), 2) as pool:
        started(pool).at(0).ask(pool.clients, Echo(), everybody(pool))
        before = [worker.process.pid for worker in pool.backend.workers]
        for pid in before:
            assert pid
            os.kill(pid, signal.SIGINT)
        pool.at(0).ask(pool.clients, Echo(), everybody(pool))
        assert [worker.process.pid for worker in pool.backend.workers] == before


def test_a_task_written_after_the_workers_started_is_known_to_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(Workers, "replace")  # nobody has to die for it
    with pooled(federation(), 2) as pool:
        pool.at(0).ask(pool.clients, Echo(), everybody(pool))
        module = type(sys)("written_late")
        sys.modules["written_late"] = module
        code = "from tests.engines.test_pool import *\n"
        code += "@dataclass(frozen=True)\nclass Late(Echo): pass\n"
        try:
            exec(code, vars(module))
            values = pool.at(0).ask(pool.clients, vars(module)["Late"](), everybody(pool)).values
        finally:
            del sys.modules["written_late"], Task.known["written_late:Late"]
    assert torch.equal(values, pool.layout.initial.expand(8, -1))


# -- what is left behind ---------------------------------------------------------------------------


def gone(pid: int) -> bool:
    """Whether a process has ended; a zombie that nobody buried has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_workers_end_with_the_pool() -> None:
    before = len(os.listdir("/proc/self/fd"))
    pool = pooled(federation(), 2)
    pool.at(0).ask(pool.clients, Echo(), everybody(pool))
    first = [worker.process.pid or 0 for worker in pool.backend.workers]
    pool.close()
    assert all(map(gone, first))
    pool.at(0).ask(pool.clients, Echo(), everybody(pool))
    second = [worker.process.pid or 0 for worker in pool.backend.workers]
    assert not any(map(gone, second))
    del pool  # nobody closed it
    assert all(map(gone, second))
    assert not multiprocessing.active_children()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.skipif(not Path("/proc").exists(), reason="no /proc to look for processes in")
@pytest.mark.parametrize("moment", ["idle", "busy"])
def test_nothing_is_left_of_a_parent_that_is_killed(tmp_path: Path, moment: str) -> None:
    long = Train(replace(SOLVER, steps=10**9)) if moment == "busy" else Echo()
    code = (
        "import time; from tests.engines.test_pool import *\n"
        "pool = started(pooled(federation(), 2))\n"
        "print(*(worker.process.pid for worker in pool.backend.workers), flush=True)\n"
        f"pool.at(0).ask(pool.clients, {long!r}, everybody(pool)); time.sleep(60)\n"
    )
    shared = Path("/dev/shm")
    before = set(shared.iterdir()) if shared.exists() else set()
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        cwd=Path(__file__).parents[2],
    )
    with parent:
        assert parent.stdout
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        time.sleep(0.2)
        assert not any(map(gone, pids))
        parent.kill()
    end = time.monotonic() + 2
    while not all(map(gone, pids)) and time.monotonic() < end:
        time.sleep(0.01)
    assert all(map(gone, pids))
    assert not list(tmp_path.iterdir())
    assert not shared.exists() or set(shared.iterdir()) <= before


def test_a_pool_that_was_started_in_a_thread_outlives_it() -> None:
    with pooled(federation(), 2) as pool:
        thread = threading.Thread(target=started, args=(pool,))
        thread.start()
        thread.join()
        values = pool.at(0).ask(pool.clients, Echo(), everybody(pool)).values
    assert torch.equal(values, pool.layout.initial.expand(8, -1))


# -- the pieces ------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=60),
    st.integers(1, 5),
)
def test_uneven_portions_are_shared_out_evenly(sizes: list[int], workers: int) -> None:
    def weight(portion: list[int]) -> float:
        return sum(sizes[j] for j in portion)

    queue = sorted(([j] for j in range(len(sizes))), key=weight, reverse=True)
    order = [j for (j,) in queue]
    load, given_out = [0.0] * workers, []
    while queue:  # whoever is done first comes back first
        bundle = take(queue, weight, workers)
        given_out += [j for (j,) in bundle]
        load[load.index(min(load))] += sum(map(weight, bundle))
    assert given_out == order  # the heaviest first, each once
    # No schedule does better than the mean, or than the heaviest alone.
    assert max(load) <= sum(sizes) / workers + max(sizes)


def test_many_small_portions_are_few_messages() -> None:
    queue, bundles = [[j] for j in range(1000)], []
    while queue:
        bundles.append(len(take(queue, len, 2)))
    assert bundles[0] == 250
    assert bundles[-1] == 1
    assert len(bundles) < 30


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64, torch.bool])
def test_a_buffer_gives_back_what_was_laid_down_however_often_it_grew(dtype: torch.dtype) -> None:
    buffer = SharedBuffer()
    other = SharedBuffer(os.dup(buffer.fd))  # as another process would see it
    rng = torch.Generator().manual_seed(0)
    laid = [torch.randint(0, 2, (n, 3), generator=rng).to(dtype) for n in (0, 1, 7, 5000, 2, 90000)]
    laid.append(laid[3].T)
    slots = [buffer.put(t) for t in laid]
    for t, slot in zip(laid, slots, strict=True):
        assert torch.equal(buffer.see(slot), t)
        assert torch.equal(other.see(slot), t)
        assert other.see(slot).data_ptr() % 64 == 0 or not t.numel()
    assert torch.equal(other.see(buffer.put_rows([laid[3], laid[3] + laid[3]]))[0], laid[3])
    buffer.clear()
    again = buffer.put(laid[3])
    assert again.start == 0
    assert torch.equal(other.see(again), laid[3])


def test_answers_are_put_together_once_and_stay_when_others_come() -> None:
    with pooled(federation(), 2) as pool:
        truth, start = federation(), everybody(pool)
        first = pool.at(0).ask(pool.clients, Train(SOLVER), start).values
        want = truth.at(0).ask(truth.clients, Train(SOLVER), start).values
        pool.at(1).ask(pool.clients, Train(SOLVER), start)
        assert torch.equal(first, want)
        assert first.untyped_storage().nbytes() == want.nbytes
        assert pool.backend.stack([first[0], first[2]]).tolist() == want[[0, 2]].tolist()


def test_room_for_large_answers_is_room_like_any() -> None:
    one = torch.arange(1500.0).view(1, -1)
    room = room_for(one, 1000)  # 6 MB: in large pages
    room.copy_(one.expand(1000, -1))
    assert torch.equal(room, one.expand(1000, -1))
    assert room_for(one.long(), 2).dtype == torch.long
