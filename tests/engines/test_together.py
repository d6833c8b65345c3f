"""What the fast engines have in common: nobody waits, or is served slower, without a word."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import coterie as ct
from coterie.cli import progress
from coterie.core.events import Event
from coterie.core.layout import Layout
from coterie.core.rng import stream
from coterie.core.types import State
from coterie.engines.choice import work
from coterie.engines.compiled.host import NotCompilableError, Processor, check_machine
from coterie.engines.together import readings
from coterie.tasks.score import Score
from coterie.tasks.solver import Descent, Solver
from coterie.tasks.train import Train
from tests.tiny import FEATURES, clients, compiled, federation, network, pooled, stacked

try:
    check_machine()
except NotCompilableError as why:
    pytest.skip(str(why), allow_module_level=True)

from coterie.engines.compiled import objects
from coterie.engines.compiled.backend import Compiled
from coterie.engines.compiled.network import Network, UnfitError
from coterie.engines.stacked.backend import Stacked


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "user_cache", lambda: tmp_path)


def population() -> ct.Population:
    return ct.Population.of({c.name: (c.x, c.y, c.x_test, c.y_test) for c in clients(4)})


@pytest.mark.usefixtures("empty_cache")
def test_that_something_is_compiled_is_told_before_and_only_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[str] = []
    real = objects.compiled

    def compiling(text: str, processor: Processor) -> bytes:
        heard.append("compiled")
        return real(text, processor)

    monkeypatch.setattr(objects, "compiled", compiling)
    for _ in range(2):
        Compiled(Layout(network()), clients(1)[0].x, lambda event: heard.append(event["event"]))
    assert heard == ["compiling", "compiled"]


@pytest.mark.usefixtures("empty_cache")
def test_a_run_that_compiles_says_so_first_and_warns_of_nothing() -> None:
    told: list[Event] = []
    for _ in range(2):
        ct.fit("fedavg", population(), network(), rounds=0, engine="compiled", on_event=told.append)
    kinds = [event["event"] for event in told]
    assert kinds[:2] == ["compiling", "start"]
    assert kinds.count("compiling") == 1
    assert "warning" not in kinds
    assert progress.outlook(told[0]) == [
        "engine  training is compiled for this network: once, it is kept for the next run"
    ]
    assert not progress.warning(told[0])


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Client 1 is one that no fast engine takes."""
    train, stack = Network.train, Stacked.train

    def refuse(descents: list[Descent]) -> None:
        if any(d.client.name == "1" for d in descents):
            descents[0].rng.manual_seed(5)  # what was drawn before does not count
            raise UnfitError("odd")

    def compiled_train(self: Network, descent: Descent, layout: Layout) -> Any:
        refuse([descent])
        return train(self, descent, layout)

    def stacked_train(self: Stacked, descents: list[Descent]) -> Any:
        refuse(descents)
        return stack(self, descents)

    monkeypatch.setattr(Network, "train", compiled_train)
    monkeypatch.setattr(Stacked, "train", stacked_train)


@pytest.mark.usefixtures("odd")
@pytest.mark.parametrize("engine", ["compiled", "compiled in processes", "stacked"])
def test_who_is_served_alone_gets_what_serial_gives_and_is_named(engine: str) -> None:
    fed = federation(kind=stacked if engine == "stacked" else compiled)
    if "processes" in engine:
        fed = pooled(fed)
    truth, task = federation(), Train()
    state = State.shared(fed.layout.initial, 8)
    with fed:
        got, want = (f.at(0).ask(f.clients, task, state).values for f in (fed, truth))
    assert torch.equal(got[1], want[1])
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    [entry] = fed.ledger
    assert entry.alone[1] == "UnfitError: odd"
    assert set(entry.alone) == ({1} if engine != "stacked" else set(range(8)))
    assert not truth.ledger[0].alone


@pytest.mark.usefixtures("odd")
def test_a_run_tells_once_who_is_served_alone() -> None:
    told: list[Event] = []
    people = population()
    method = ct.FedAvg(fraction=1.0)
    ct.fit(method, people, network(), rounds=3, engine="compiled", on_event=told.append)
    [said] = [event for event in told if event["event"] == "alone"]
    assert said == {
        "event": "alone",
        "round": 1,
        "clients": ["1"],
        "task": "Train",
        "why": "UnfitError: odd",
    }
    assert "Train was done one by one, which is slower, for 1: UnfitError: odd" in (
        progress.warning(said)
    )


def test_samples_that_count_by_weights_are_not_compiled_and_that_is_said() -> None:
    person, layout = clients(1)[0], Layout(network())
    backend = Compiled(layout, person.x)
    weights = torch.linspace(0.5, 1.5, len(person))
    how = (Solver(batch=5), person, layout.initial)
    with pytest.raises(UnfitError, match="weights"):
        backend.network.train(Descent(*how, stream(1), weights=weights), layout)
    told: dict[int, str] = {}
    fed = federation(kind=compiled, people=[person])
    task, state = Train(Solver(batch=5)), State.shared(layout.initial, 1)
    question = fed.at(0).question(fed.clients, task, state, {})
    work = {0: Descent(*how, stream(1), weights=weights)}
    [(row, _)] = backend.work(work, [person], question, told).values()
    assert torch.equal(row, Descent(*how, stream(1), weights=weights).run_single(layout)[0])
    assert "weights" in told[0]


def test_the_rough_time_of_a_round_is_that_of_the_engine() -> None:
    sizes, method = torch.full((10,), 500.0), ct.FedAvg(fraction=1.0)
    layout = Layout(network())

    def seconds(engine: str) -> float:
        cohort, found = work(layout, method, sizes, (FEATURES,), engine)
        assert cohort == 10
        return found

    assert 0 < seconds("compiled") < seconds("stacked") < seconds("serial")
    assert seconds("pool") == seconds("serial")


def test_a_test_that_is_read_alone_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    fed, truth = federation(kind=compiled), federation()

    def refuse(*_: object) -> None:
        raise UnfitError("odd")

    monkeypatch.setattr(Network, "read", refuse)
    state = State.shared(fed.layout.initial, 8)
    got, want = (f.at(0).ask(f.clients, Score(), state).values for f in (fed, truth))
    torch.testing.assert_close(got, want)
    assert set(fed.ledger[0].alone) == set(range(8))


def test_clients_of_one_model_that_share_their_test_set_share_a_portion() -> None:
    sets = [torch.zeros(400, 2), torch.zeros(400, 2)]
    whose, held = [0, 1, 0, 1, 0, 1], [0, 0, 0, 0, 1, 1]
    people = [
        SimpleNamespace(x_test=sets[s], y_test=torch.zeros(400), y_val=torch.zeros(0))
        for s in whose
    ]
    state = SimpleNamespace(assign=torch.tensor(held))
    question: Any = SimpleNamespace(clients=people, cohort=torch.arange(6), state=state)
    assert readings(question, 400) == [[0, 2], [1, 3], [4], [5]]
    assert readings(question, 2000) == [[0, 2, 1, 3], [4, 5]]
    many: Any = SimpleNamespace(
        clients=people[:1] * 30,
        cohort=torch.arange(30),
        state=SimpleNamespace(assign=torch.zeros(30, dtype=torch.long)),
    )
    assert [len(p) for p in readings(many, 400)] == [9, 16, 5], "it may be other samples since"
