"""Hyper-parameters read from source agree with the classes themselves."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from coterie.config import fields as reader
from coterie.config.tables import ELSEWHERE, all_fields, hyperparameters, paper
from coterie.config.validate import fits, plain
from coterie.core.errors import ConfigError
from coterie.methods import METHODS, find


def as_plain(value: Any) -> Any:
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value  # type: ignore[arg-type]


@pytest.mark.parametrize("name", METHODS)
def test_source_and_class_have_the_same_fields_and_defaults(name: str) -> None:
    cls: Any = find(name)
    made = cls()
    read = {key: plain(f.default) for key, f in all_fields(name).items()}
    assert read == {f.name: as_plain(getattr(made, f.name)) for f in dataclasses.fields(cls)}


@pytest.mark.parametrize("name", METHODS)
def test_source_and_class_have_the_same_bounds(name: str) -> None:
    cls: Any = find(name)
    hints = get_type_hints(cls, include_extras=True)
    for key, field in hyperparameters(name).items():
        if reader.__name__ not in str(field.annotation) and "Solver" not in str(hints[key]):
            assert field.annotation == hints[key], key


@pytest.mark.parametrize("name", METHODS)
def test_training_of_the_paper_is_the_default_solver(name: str) -> None:
    made: Any = find(name)()
    own = paper(name)
    assert own["lr"] == made.solver.lr
    assert own.get("participation") == getattr(made, "fraction", None)
    assert not set(own) & set(ELSEWHERE)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A method of somebody else's, importable from a folder of theirs."""
    (tmp_path / "theirs_for_a_test.py").write_text(
        "from dataclasses import dataclass, field\n"
        "from coterie.core.bounds import Count, Share\n"
        "@dataclass(frozen=True)\n"
        "class Mine:\n"
        "    k: Count = 3  # how many clusters\n"
        "    parts: tuple[Share, ...] = field(default_factory=lambda: (0.5,))\n"
        "    must: int = field(kw_only=True)\n"
        "    fraction: Share = 1.0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "theirs_for_a_test", raising=False)
    return "theirs_for_a_test"


def test_a_method_from_elsewhere_is_imported(module: str) -> None:
    own = hyperparameters(f"{module}:Mine")
    assert {k: f.default for k, f in own.items()} == {
        "k": 3,
        "parts": (0.5,),
        "must": reader.Required,
    }
    assert own["k"].comment == "how many clusters"


@pytest.mark.parametrize(
    "name", ["no_such_module_here:X", "json:NoSuchClass", "json:loads", ":", "a:"]
)
def test_what_cannot_be_imported_is_an_error_of_the_experiment(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be imported") as caught:
        hyperparameters(name)
    assert caught.value.code == "C040"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of source files that are only ever read."""
    monkeypatch.setattr(reader, "PACKAGE", tmp_path)
    for cached in (reader.parse, reader.fields, reader.record):
        cached.cache_clear()
    yield tmp_path
    for cached in (reader.parse, reader.fields, reader.record):
        cached.cache_clear()


SOLVER = """
import torch
from typing import Literal
from coterie.core.bounds import Count, Positive
SIZE = 4 * 8
class Solver(torch.nn.Module):
    lr: Positive = 0.01  # learning rate
    batch: Count = SIZE
"""
METHOD = """
from __future__ import annotations
import torch
from typing import ClassVar, Literal
from coterie.core.bounds import Count, Share
from coterie.tasks.solver import Solver as Local
from coterie.core.types import Federation
Linkage = Literal["average", "single"]
class Shared:
    solver: Local = Local(lr=0.5)
    fraction: Share = 0.1  # ü before the end
@some_decorator(frozen=True)
class Method(Shared):
    known: ClassVar[dict[str, torch.Tensor]] = {}
    linkage: Linkage = "average"  # how clusters are joined
    k: Count | Literal["auto"] = (
        "auto"
    )  # how many
    warmup: Local | None = None
    parts: tuple[Share, ...] = (0.5, 0.25)
    def round(self, state: torch.Tensor) -> None:
        x: int = 3
"""


def test_inheritance_aliases_constants_and_nested_records_are_followed(package: Path) -> None:
    (package / "tasks").mkdir()
    (package / "tasks" / "solver.py").write_text(SOLVER)
    (package / "method.py").write_text(METHOD)
    found = reader.fields("coterie.method", "Method")
    assert {k: plain(f.default) for k, f in found.items()} == {
        "solver": {"lr": 0.5, "batch": 32},
        "fraction": 0.1,
        "linkage": "average",
        "k": "auto",
        "warmup": None,
        "parts": (0.5, 0.25),
    }
    assert [found[k].comment for k in ("fraction", "linkage", "k", "parts")] == [
        "ü before the end",
        "how clusters are joined",
        "how many",
        "",
    ]


def test_an_interface_admits_anything(package: Path) -> None:
    (package / "method.py").write_text(
        "from typing import Protocol\nclass Any(Protocol):\n    rate: float\n"
        "class M:\n    x: Any | None = None  # whatever has a rate\n"
    )
    assert fits(reader.fields("coterie.method", "M")["x"].annotation, object())


def test_a_type_that_needs_a_heavy_import_is_refused(package: Path) -> None:
    (package / "method.py").write_text("import torch\nclass M:\n    x: torch.Tensor = 1\n")
    with pytest.raises((NameError, AttributeError)):
        reader.fields("coterie.method", "M")
