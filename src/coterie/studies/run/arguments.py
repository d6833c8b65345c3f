"""What Python callers hand in, as what is meant by it; anything else is refused in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from coterie.attacks.attack import Attack
from coterie.core.best_by import Stop
from coterie.core.client import Client
from coterie.core.errors import ConfigError, Fault, FieldError
from coterie.core.suggest import similar
from coterie.core.types import Method
from coterie.data.dataset import Data
from coterie.data.population import Population
from coterie.methods import METHODS, find
from coterie.studies.run.plan import Plan
from coterie.tasks.measured import named

HARDWARE = ("device", "cuda", "gpu", "gpus", "accelerator")  # what other libraries call it


class PlanOptions(TypedDict, total=False):
    """Keywords of `fit` that say when a run is measured and what of it is kept: as in `Plan`."""

    every: int
    last_k: int
    target: float | None
    absent: Literal["last-known"] | None
    metrics: Sequence[str | Callable[..., Any]]
    tuned: int
    first: int
    last: int
    everybody: int
    checkpoint_every: int
    keep: int
    stop: Stop | Mapping[str, Any] | None


class FitOptions(PlanOptions, total=False):
    """Keywords of `fit` that a comparison hands on to each of its runs."""

    head: str | None
    model_options: dict[str, Any] | None
    engine: str
    workers: int
    address: str | None
    attack: Attack | None


def method_of(given: Method | str) -> Method:
    """A method, also one that is given by its name.

    >>> method_of("fedavg") == method_of("FedAvg") == method_of(find("fedavg")())
    True
    """
    if isinstance(given, str):
        by_class = {entry.cls.lower(): entry.name for entry in METHODS.values()}
        made: Method = find(by_class.get(given.lower(), given))()
        return made
    if isinstance(given, type) and hasattr(given, "round"):
        raise meant("method", given, "the class, not a method of it", f"{given.__name__}()")
    if not all(hasattr(given, name) for name in ("init", "round", "place", "score")):
        raise meant("method", given, "no method", 'coterie.FedAvg(), or its name: "fedavg"')
    return given


def clients_of(given: object) -> Population:
    """The clients to train with, refused if they are data that nobody has divided."""
    if isinstance(given, Population):
        return given
    several = isinstance(given, Mapping) or (
        isinstance(given, Sequence) and bool(given) and isinstance(given[0], Client | tuple | list)
    )
    if several:
        raise meant("population", given, "no population", "coterie.Population.of(clients)")
    shown = f'"{given}"' if isinstance(given, str) else "data"
    divided = f'coterie.partition({shown}, "dirichlet:0.3", clients=20)'
    kind = "data, not divided yet" if isinstance(given, str | Data | tuple) else "no population"
    raise meant("population", given, kind, divided)


def attack_of(given: object) -> Attack | None:
    """What hostile clients do, or nothing."""
    if given is None or isinstance(given, Attack):
        return given
    kind = given if isinstance(given, str) else "sign-flip"
    raise meant("attack", given, "no attack", f'coterie.Attack("{kind}", share=0.2)')


def plan_of(rounds: int, given: Mapping[str, Any]) -> Plan:
    """The plan of a run; a keyword that `fit` does not have is refused by name."""
    known = [*FitOptions.__annotations__]  # those of a plan among them
    for key, value in given.items():
        if key in HARDWARE:
            fix = f"leave {key} out: coterie computes on the CPU; engine and workers say how"
            raise FieldError("there is no GPU to use", [Fault(key, value, "CPU only")], fix=fix)
        if key not in PlanOptions.__annotations__:
            fix = similar(key, known, "keyword") or f"its keywords are {', '.join(known)}"
            fault = Fault(key, value, "no such keyword")
            raise FieldError("fit cannot have this keyword", [fault], fix=fix)
    given = {**given, "metrics": tuple(map(named, given.get("metrics", ())))}
    return Plan(rounds, **given)


def meant(name: str, given: object, what: str, instead: str) -> ConfigError:
    """The error about an argument of another kind than the one that is asked for."""
    kind = given.__name__ if isinstance(given, type) else type(given).__name__
    return ConfigError(f"{name} is {what}: {kind}", code="C060", fix=f"write {instead}")
