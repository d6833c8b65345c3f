"""The examples run, and show what they are meant to show."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import coterie as ct
from coterie.core.loop import run
from tests.tiny import federation, same

EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where pydantic looks up the names in annotations
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("name", ["own_method", "own_data"])
def test_an_example_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    example(name).main(rounds=2)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-2] for line in lines[:2]] == ["1", "2"]  # models: FedAvg, then its own


def test_the_example_method_finds_the_planted_groups() -> None:
    clients = ct.partition("digits", "label-groups:0-4/5-9", clients=6)
    method = example("own_method").ByLabels(ct.Solver(lr=0.05))
    result = ct.fit(method, clients, "mclr", rounds=1)
    assert list(result.clusters.values()) == [0, 0, 0, 1, 1, 1]


def test_the_example_method_can_be_resumed_from_any_round() -> None:
    method = example("own_method").ByLabels(ct.Solver(lr=0.1))
    states = list(run(method, federation(), 3))
    for state in states:
        *_, end = run(method, federation(), 3, state)
        assert same(end, states[-1])


def test_the_example_method_places_newcomers_where_their_labels_are() -> None:
    method, fed = example("own_method").ByLabels(), federation()
    state = method.init(fed)
    gone = state.reassign(torch.tensor([0]), torch.tensor([-1]))
    assert method.place(gone, fed).assign.tolist() == state.assign.tolist()


@pytest.mark.parametrize("name", ["GainAvg", "FedAdam"])
def test_an_example_task_gives_the_same_on_every_engine(name: str) -> None:
    clients = ct.partition("digits", "iid", clients=3)
    method = getattr(example("own_task"), name)()
    ends = [
        ct.fit(method, clients, "mclr", rounds=1, engine=engine, workers=1).state.models
        for engine in ("serial", "stacked")
    ]
    torch.testing.assert_close(*ends, rtol=1e-4, atol=1e-5)


def test_an_example_task_that_names_its_steps_is_stacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ct.Descent, "run_single")  # nobody trains by itself
    clients = ct.partition("digits", "iid", clients=3)
    ct.fit(example("own_task").GainAvg(), clients, "mclr", rounds=1, engine="stacked", workers=1)


def test_the_example_clients_come_in_two_groups() -> None:
    people = example("own_data").places()
    assert people.group is not None
    assert people.group.bincount().tolist() == [6, 6]
