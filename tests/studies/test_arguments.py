"""What Python callers hand in: names are understood, mistakes are refused in words with a code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

import coterie as ct
from coterie.core.errors import CoterieError
from coterie.studies.run.arguments import PlanOptions
from coterie.studies.run.plan import Plan

X, Y = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 2
CLIENTS = ct.Population.of([(X, Y), (X, Y)])


def fit(method: Any = "fedavg", clients: Any = CLIENTS, model: Any = "mclr", **how: Any) -> Any:
    return ct.fit(method, clients, model, **{"rounds": 1, **how})


def compare(**how: Any) -> Any:
    return ct.compare(["fedavg", "local"], CLIENTS, "mclr", **{"rounds": 1, **how})


@pytest.mark.parametrize("name", ["fedavg", "FedAvg", "lg-fedavg", "LGFedAvg", "kin"])
def test_a_method_may_be_named(name: str) -> None:
    assert type(fit(name).method).__name__.lower() == name.lower().replace("-", "")


def test_methods_that_are_compared_may_be_named(tmp_path: Path) -> None:
    how: dict[str, Any] = {"rounds": 1, "seeds": 1, "last_k": 1}
    found = ct.compare(["fedavg", ct.Local()], CLIENTS, "mclr", out=tmp_path / "a", **how)
    assert found.methods == ("fedavg", "local")
    found = ct.compare({"x": "fedavg", "y": "local"}, CLIENTS, "mclr", out=tmp_path / "b", **how)
    assert found.methods == ("x", "y")


MISTAKES: dict[str, tuple[Callable[[], object], str, str]] = {
    "a method nobody knows": (lambda: fit("fedavgg"), "C041", "a similar name exists: fedavg"),
    "a class": (lambda: fit(ct.FedAvg), "C060", "write FedAvg()"),
    "no method": (lambda: fit(3), "C060", 'or its name: "fedavg"'),
    "data": (lambda: fit(clients="digits"), "C060", 'write coterie.partition("digits"'),
    "arrays": (lambda: fit(clients=(X, Y)), "C060", "write coterie.partition(data"),
    "a list": (lambda: fit(clients=[(X, Y)]), "C060", "write coterie.Population.of(clients)"),
    "names": (lambda: fit(clients={"a": (X, Y)}), "C060", "write coterie.Population.of(clients)"),
    "no clients": (lambda: fit(clients=None), "C060", "population is no population: NoneType"),
    "inspected": (lambda: ct.inspect("digits"), "C060", "coterie.partition("),
    "a network": (lambda: fit(model=7), "C031", "name a function that returns an nn.Module"),
    "a seed that is no whole number": (lambda: fit(seed=1.9), "C060", "seed = 1.9"),
    "a seed below zero": (lambda: fit(seed=-1), "C060", "a whole number from 0 on"),
    "clients as text": (lambda: ct.partition("digits", clients="4"), "C060", "clients = '4'"),
    "no client": (lambda: ct.partition("digits", clients=0), "C060", "from 1 on"),
    "an attack as text": (lambda: fit(attack="scaling"), "C060", 'coterie.Attack("scaling", share'),
    "a folder": (lambda: fit(out=3), "C060", "out = 3 is no path"),
    "a run": (lambda: ct.open_run(3), "C060", "folder = 3 is no path"),  # type: ignore[arg-type]
    "a model": (lambda: ct.load_model(None), "C060", "path = None is no path"),  # type: ignore[arg-type]
    "nobody": (lambda: ct.Population.of(None), "D043", "NoneType is no list"),  # type: ignore[arg-type]
    "one tensor": (lambda: ct.Population.of(X), "D043", "Tensor is no list"),  # type: ignore[arg-type]
    "a share as text": (
        lambda: ct.Population.of([(X, Y)], test_share="a"),  # type: ignore[arg-type]
        "D043",
        "test_share = 'a'",
    ),
    "a limit as text": (lambda: ct.load("digits", limit="9"), "C060", "limit = '9'"),  # type: ignore[arg-type]
    "no kind": (lambda: ct.partition("digits", None), "C020", "NoneType is no kind"),  # type: ignore[arg-type]
    "seeds as text": (lambda: compare(seeds="01"), "C060", "write 3 or [0, 1, 2]"),
    "a seed twice": (lambda: compare(seeds=[0, 1, 0]), "C017", "a seed stands twice: 0, 1, 0"),
    "a device": (lambda: fit(device="cuda"), "C060", "coterie computes on the CPU"),
    "a keyword": (lambda: fit(evry=2), "C060", "a similar keyword exists: every"),
    "a number": (lambda: fit(every=0), "C060", "every = 0: input should be greater than"),
    "rounds": (lambda: fit(rounds="two"), "C060", "rounds = two: input should be a valid integer"),
    "an engine": (lambda: fit(engine="gpu"), "C042", "serial"),
    "an optimizer": (lambda: ct.Solver(optimizer="adam"), "C060", "optimiser=SGD("),
    "a text": (lambda: ct.Solver(optimiser="adam"), "C060", "optimiser=SGD("),
    "a position": (lambda: ct.Solver("fast"), "C060", "lr = fast: input should be a valid number"),
    "another name": (lambda: ct.IFCA(k=4), "C060", "k = 4: no such field"),
    "a kind": (lambda: ct.Rotation(angle=3), "C060", "a similar field exists: angles"),
    "one text": (
        lambda: ct.compare("fedavg,kin", CLIENTS, "mclr", rounds=1),
        "C060",
        "['fedavg', 'kin']",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_with_its_code_and_what_to_write(name: str) -> None:
    make, code, said = MISTAKES[name]
    with pytest.raises(CoterieError) as caught:
        make()
    assert caught.value.code == code
    assert caught.value.fix
    assert said in str(caught.value)
    assert "pydantic" not in str(caught.value)


def test_the_keywords_of_a_plan_are_its_fields() -> None:
    assert ["rounds", *PlanOptions.__annotations__] == [f.name for f in fields(Plan)]


def test_a_class_speaks_again_after_it_was_used() -> None:
    """Whatever is built at the first use: what is wrong afterwards is told in the same words."""

    @ct.dataclass(frozen=True)
    class Mine:
        share: ct.Share = 0.5

    assert Mine(share=0.25).share == 0.25
    for _ in range(2):
        with pytest.raises(ct.FieldError, match=r"share = 2: input should be less than or equal"):
            Mine(share=2)


class NoState:
    """A method whose author forgot to return the state, or changed its width."""

    score = ct.FedAvg().score

    def __init__(self, found: Any) -> None:
        self.found = found

    def init(self, fed: Any) -> ct.State:
        return ct.FedAvg().init(fed)

    def round(self, state: ct.State, fed: Any) -> Any:
        return self.found

    def place(self, state: ct.State, fed: Any) -> ct.State:
        return state


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "NoState.round returned NoneType, not the State after the round"),
        (ct.State(torch.zeros(1, 5), torch.zeros(2, dtype=torch.long)), "models of 5 numbers"),
    ],
)
def test_a_method_that_returns_no_state_is_named(found: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        fit(NoState(found))
