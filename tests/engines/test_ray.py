"""Ray answers as the engine inside its actors would, to the bit, whatever happens to them."""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from coterie.core.client import Client
from coterie.core.errors import ClientError, ConfigError
from coterie.core.layout import Layout
from coterie.core.loop import evaluate, run
from coterie.data.population import partition
from coterie.engines.front import Front
from coterie.engines.workers.backend import Workers
from coterie.engines.workers.shared_memory import in_place
from coterie.methods import find
from coterie.methods.fedavg import FedAvg
from coterie.models.factory import build
from coterie.studies.run import training
from coterie.tasks.solver import Solver
from coterie.tasks.train import Train
from tests.engines.test_engine import Count, Stumble, everybody
from tests.engines.test_pool import Die, Echo, gone, remembers_alike, started
from tests.faults.test_workers import Freeze
from tests.tiny import compiled, federation, pooled, same, stacked

pytest.importorskip("ray")
SOLVER = Solver(lr=0.1, batch=8)
METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "fedclust": {"warmup_epochs": 2},
    "dapfl": {},
    "feddsmic": {},
    "ditto": {},
}
STACKED = partial(stacked, workers=2)
slow = pytest.mark.slow


def method(name: str) -> Any:
    return find(name)(solver=SOLVER, fraction=0.6, **METHODS[name])


def on_ray(fed: Front, workers: int) -> Front:
    """The same federation, answered by actors."""
    from coterie.engines.ray import Actors

    fed.backend = Workers(fed.backend, Actors(workers))
    return fed


@pytest.fixture(scope="module")
def actors() -> Iterator[Any]:
    """One Ray for all of this file, and two actors with the serial engine inside."""
    import ray

    with on_ray(federation(), 2) as fed:
        yield fed
    assert not ray.is_initialized()  # whoever came second left it to the first


@pytest.fixture
def fed(actors: Any) -> Any:
    """As it was at first, but for the actors, who stay."""
    actors.restore({})
    actors.ledger.clear()
    return actors


# -- the same bits ---------------------------------------------------------------------------------


@slow
@pytest.mark.parametrize("inside", [STACKED, compiled])
def test_ray_gives_the_bits_of_the_engine_inside(inside: Any, actors: Any) -> None:
    started(actors)
    with on_ray(federation(kind=inside), 2) as fed:
        for name in METHODS:
            fed.restore({})
            truth, alone = federation(), pooled(federation(kind=inside), 2)
            *_, c = run(method(name), truth, 3)
            for a, b in zip(run(method(name), alone, 3), run(method(name), fed, 3), strict=True):
                assert same(a, b), name
            assert remembers_alike(alone, fed)
            assert torch.equal(b.assign, c.assign)
            torch.testing.assert_close(b.models, c.models, rtol=1e-4, atol=1e-5)
            told, meant = evaluate(method(name), b, fed), evaluate(method(name), a, alone)
            assert torch.equal(told.loss, meant.loss), name
            for there, here in zip(alone.ledger, fed.ledger, strict=True):
                assert torch.equal(there.clients, here.clients)
                assert torch.equal(there.down, here.down)
                assert torch.equal(there.up, here.up)
            fed.ledger.clear()
            alone.close()


def test_actors_train_as_they_did_when_the_run_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of runs from before there was a compiled engine were stacked."""
    pytest.importorskip("llvmlite")
    built = []

    def build(*given: Any, **_: Any) -> SimpleNamespace:
        built.append(given[-1])
        return SimpleNamespace()

    monkeypatch.setattr(training.engines, "build", build)
    clients = partition("digits", "rotation", clients=4, seed=3)
    layout = training.build_layout("cnn-s", clients.shape, clients.classes)
    gather = training.simulation(FedAvg(SOLVER), clients, layout, engine="ray", workers=2)
    notes = [None, {"engine": "ray", "workers": 2}]
    notes.append(notes[1] | {"inner": "compiled"})  # type: ignore[operator]
    said = [gather(lambda _: None, n and SimpleNamespace(notes=n)).notes for n in notes]  # type: ignore[arg-type]
    assert built == [told["inner"] for told in said] == ["compiled", "stacked", "compiled"]


@slow
def test_with_serial_inside_ray_gives_the_bits_of_serial(fed: Any) -> None:
    for name in METHODS:
        fed.restore({})
        truth = federation()
        (*_, a), (*_, b) = run(method(name), truth, 3), run(method(name), fed, 3)
        assert same(a, b), name
        assert remembers_alike(truth, fed)


@slow
def test_memories_stay_here_and_evaluation_writes_none(fed: Any) -> None:
    fed.at(0).ask(fed.clients[:2], Count(), everybody(fed))
    fed.at(0, "evaluate").ask(fed.clients, Count(), everybody(fed))
    times = fed.at(1).ask(fed.clients[:3], Count(), everybody(fed)).values
    assert times.flatten().tolist() == [2, 2, 1]
    assert [int(fed.memory[i]["times"]) for i in range(3)] == [2, 2, 1]


@slow
def test_clients_whose_data_change_are_asked_as_they_are_in_that_round(actors: Any) -> None:
    def drifting(round: int) -> Front:
        people = partition("digits", f"rotation:0,180+drift:round={round},share=0.5", clients=4)
        net = build("mclr", shape=people.shape, classes=people.classes, seed=0)
        return Front(
            people, Layout(net), classes=people.classes, sizes=people.sizes, names=people.names
        )

    started(actors)
    avg = FedAvg(SOLVER)
    *_, alone = run(avg, drifting(2), 4)
    *_, never = run(avg, drifting(9), 4)
    with on_ray(drifting(2), 1) as fed:
        *_, there = run(avg, fed, 4)
    assert same(alone, there)
    assert not same(alone, never)


# -- what goes wrong -------------------------------------------------------------------------------


@slow
@pytest.mark.row(5)
def test_what_an_actor_died_over_is_done_by_another(fed: Any, tmp_path: Path) -> None:
    import ray

    truth = federation()
    task = Die(str(tmp_path), ("0", "7"))
    expected = truth.at(0).ask(truth.clients, replace(task, clients=()), everybody(truth)).values
    assert torch.equal(fed.at(0).ask(fed.clients, task, everybody(fed)).values, expected)
    assert len(list(tmp_path.iterdir())) == 2  # they did die
    first, _ = fed.backend.workers
    ray.kill(first.handle)  # between two questions
    assert torch.equal(fed.at(0).ask(fed.clients, task, everybody(fed)).values, expected)
    assert first not in fed.backend.workers


@slow
def test_an_actor_that_is_killed_mid_round_changes_nothing(
    fed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    alone = federation()
    *_, a = run(method("ditto"), alone, 2)
    killed: list[Any] = []
    usual = fed.backend.cluster.ready

    def killing(busy: Any) -> Any:
        if not killed:
            killed.append(busy[-1])
            ray.kill(busy[-1].handle)
        return usual(busy)

    monkeypatch.setattr(fed.backend.cluster, "ready", killing)
    *_, b = run(method("ditto"), fed, 2)
    assert len(killed) == 1
    assert not killed[0].alive
    assert same(a, b)
    assert remembers_alike(alone, fed)


@pytest.mark.row(5)
@slow
def test_what_a_frozen_actor_was_at_is_done_by_another(
    fed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coterie.engines import ray as ours

    for name, value in (("LOOK", 0.2), ("PATIENCE", 25), ("UNKNOWN", 3000)):
        monkeypatch.setattr(ours, name, value)
    truth = federation()
    expected = truth.at(0).ask(truth.clients, Train(SOLVER), everybody(truth)).values
    values = fed.at(0).ask(fed.clients, Freeze(str(tmp_path)), everybody(fed)).values
    assert torch.equal(values, expected)
    assert any("it computed nothing for 5 seconds at client" in t for t in fed.ledger[-1].mended)


@slow
def test_how_long_an_actor_has_computed_is_asked_on_its_own_machine(
    fed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a cluster that was joined, where the process may be on any machine."""
    import ray

    from coterie.engines import ray as ours

    started(fed)
    monkeypatch.setattr(ours.Link, "started", False)
    monkeypatch.setattr(ours, "LOOK", 120.0)
    place = ray.get(fed.backend.workers[0].place)
    assert ours.computed_by(place).replace(" ", "").isdigit()


@slow
def test_a_client_that_no_actor_survives_is_named(fed: Any, tmp_path: Path) -> None:
    task = Die(str(tmp_path), ("4",), times=99)
    with pytest.raises(ClientError, match="3 worker processes died on client 4") as error:
        fed.at(2).ask(fed.clients[3:6], task, everybody(fed))
    assert error.value.code == "U002"
    assert "round 3, Die; the last one: " in error.value.where
    assert len(list(tmp_path.iterdir())) == 3


@slow
def test_a_users_exception_comes_with_the_client_and_the_traceback(fed: Any) -> None:
    with pytest.raises(ClientError, match="RuntimeError on client 3: mat1 and mat2") as error:
        fed.at(4).ask(fed.clients, Stumble(), everybody(fed))
    assert "round 5" in error.value.where
    assert 'raise RuntimeError("mat1' in str(error.value.__cause__)
    values = fed.at(4).ask(fed.clients[:3], Echo(), everybody(fed)).values
    assert torch.equal(values, fed.layout.initial.expand(3, -1))


@slow
def test_nobody_is_asked_without_an_actor(actors: Any) -> None:
    fed = on_ray(federation(), 2)
    assert len(fed.at(0).ask(fed.clients[:0], Train(SOLVER), everybody(fed)).values) == 0
    assert not fed.backend.workers


def test_without_ray_its_name_is_told() -> None:
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "from coterie.core.errors import ConfigError\n"
        "try:\n    import coterie.engines.ray\n"
        "except ConfigError as e:\n    assert e.code == 'C054' and 'coterie[ray]' in e.fix\n"
        "else:\n    raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- a Ray of one's own ----------------------------------------------------------------------------

LIFE = """
import os, signal, sys, time
import ray
from coterie.engines.ray import Link
from coterie.tasks.solver import Solver
from coterie.tasks.train import Train
from tests.engines.test_engine import everybody
from coterie import engines
from tests.engines.test_ray import Layout, build, partition

def stop(*_): pass
signal.signal(signal.SIGTERM, stop)
people = partition("digits", "iid", clients=6)
layout = Layout(build("mclr", shape=people.shape, classes=people.classes, seed=0))
fed = engines.build("ray", people, layout, 0, 1)
fed.at(0).ask(fed.clients, Train(Solver()), everybody(fed))
assert signal.getsignal(signal.SIGTERM) is stop
assert Link.started and "RAY_AUTH_TOKEN" not in os.environ
address = ray.get_runtime_context().gcs_address
node = ray._private.worker._global_node
pids = [p.process.pid for kind in node.all_processes.values() for p in kind]
print(address, *pids, flush=True)
sys.stdin.readline()
fed.close()
assert not ray.is_initialized()
print("closed", flush=True)
"""


@slow
@pytest.mark.row(31)
def test_a_ray_of_our_own_hears_nobody_else_and_is_gone_in_the_end() -> None:
    child = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", LIFE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    with child:
        assert child.stdin
        assert child.stdout
        address, *pids = child.stdout.readline().split()
        assert len(pids) >= 2
        stranger = (
            "import os, ray\n"
            "os.environ.update(RAY_AUTH_MODE='token', RAY_AUTH_TOKEN='0' * 64)\n"
            "try:\n"
            f"    ray.init(address={address!r}, log_to_driver=False)\n"
            "except Exception as e:\n    print(type(e).__name__, e)\n"
            "else:\n    print('let in')\n"
        )
        tried = subprocess.run([sys.executable, "-c", stranger], capture_output=True, text=True)
        assert "let in" not in tried.stdout
        assert "uthenticat" in tried.stdout + tried.stderr
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "closed\n"
        assert all(gone(int(pid)) for pid in pids)


# -- the pieces ------------------------------------------------------------------------------------


def carried(thing: Any) -> tuple[Any, list[Any]]:
    """What arrives, and the memories it travelled in."""
    buffers: list[pickle.PickleBuffer] = []
    with in_place():
        text = pickle.dumps(thing, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(text, buffers=[memoryview(bytes(b.raw())) for b in buffers]), buffers


def full(buffers: list[Any]) -> list[Any]:
    """Those that hold something: validation samples that nobody has are an empty memory."""
    return [b for b in buffers if b.raw().nbytes]


def test_tensors_of_one_memory_travel_in_it_once() -> None:
    whole = torch.randn(50, 3)
    parts = {
        "whole": whole,
        "rows": whole[10:20],
        "turned": whole.T,
        "none": whole[:0],
        "number": torch.tensor(2.5),
        "half": torch.randn(4).bfloat16(),
        "yes": torch.tensor([True, False]),
        "empty": torch.empty(0, dtype=torch.long),
    }
    there, buffers = carried(parts)
    for name, t in parts.items():
        assert torch.equal(there[name], t)
        assert there[name].dtype == t.dtype
        assert there[name].stride() == t.stride()
    assert there["rows"].data_ptr() == there["whole"][10:].data_ptr()
    assert sum(b.raw().nbytes for b in buffers if b.raw().nbytes == whole.nbytes) == whole.nbytes


def test_clients_that_share_their_test_samples_share_them_there() -> None:
    x, y = torch.randn(9, 2), torch.zeros(9, dtype=torch.long)
    people = [Client(x[:4], y[:4], x[6:], y[6:]), Client(x[4:6], y[4:6], x[6:], y[6:])]
    (a, b), buffers = carried(people)
    assert a.x_test.data_ptr() == b.x_test.data_ptr()
    assert torch.equal(b.x, people[1].x)
    assert len(full(buffers)) == 2
    again = pickle.loads(pickle.dumps(x))  # and nothing is left of it
    assert again.is_contiguous()
    assert len(full(buffers)) == 2


def test_too_few_cores_in_a_cluster_are_told_before_anybody_waits() -> None:
    from coterie.engines import ray as engine

    class Somewhere:
        def is_initialized(self) -> bool:
            return True

        def cluster_resources(self) -> dict[str, float]:
            return {"CPU": 2.0}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "ray", Somewhere())
        patch.setattr(engine.Link, "started", False)
        patch.setattr(engine.Link, "users", set())
        assert engine.Link("auto").open(2, 0)
        with pytest.raises(ConfigError, match="the Ray cluster has 2 cores"):
            engine.Link("auto").open(3, 0)


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_where_nobody_listens_is_told_at_once(scheme: str) -> None:
    from coterie.engines.ray import connect

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"{scheme}127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match="no connection to Ray") as error:
            connect(address, 0)
    assert error.value.code == "C055"
    assert "refused" in error.value.why
