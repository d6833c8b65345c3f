"""Who may import whom. A rule that is not tested does not hold for long.

Each package of `src/coterie` ends its docstring with `May touch: ...`; this file holds every module
to it, imports inside functions and for type checkers included.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "coterie"
FILES = sorted(SRC.rglob("*.py"))
EVERY = pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SRC)))
ROOMS = sorted(p.parent.name for p in SRC.glob("*/__init__.py"))
TOP = {"__init__.py", "__main__.py", "py.typed"}  # all that lies beside the rooms
HEAVY_ENGINES = {"flwr": "engines/flower", "ray": "engines/ray.py"}


def may_touch(room: str) -> set[str]:
    """What a package's own docstring allows it."""
    text = ast.get_docstring(ast.parse((SRC / room / "__init__.py").read_text())) or ""
    (may,) = re.findall(r"^May touch: ([^.]*)\.$", text, re.MULTILINE)
    allowed = " ".join(may.split())
    if allowed == "everything":
        return set(ROOMS)
    return set() if allowed == "nothing" else set(allowed.split(", "))


def name_of(path: Path) -> str:
    """The dotted name of a module."""
    parts = path.relative_to(SRC.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in FILES}


@cache
def imports(path: Path, *, typing: bool = True) -> frozenset[str]:
    """The modules a file imports, wherever in it; those for type checkers alone can be left out."""
    tree = ast.parse(path.read_text())
    skipped = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test) and not typing
        for node in ast.walk(block)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in names}
    return frozenset(found)


def test_only_rooms_lie_at_the_top() -> None:
    there = {p.name for p in SRC.iterdir() if p.name != "__pycache__"}
    assert there == {*ROOMS, *TOP}


def test_the_rooms_lie_in_layers() -> None:
    order = TopologicalSorter({room: may_touch(room) - {room} for room in ROOMS})
    assert set(order.static_order()) == set(ROOMS)  # raises CycleError if two may touch each other


@EVERY
def test_a_module_imports_only_what_its_room_may(path: Path) -> None:
    room = path.relative_to(SRC).parts[0]
    if room in TOP:
        return
    used = {m.split(".")[1] for m in imports(path) if m.startswith("coterie.")}
    assert used - may_touch(room) - {room} == set()
    assert "coterie" not in imports(path), "a module imports its room, not the package"


def test_no_module_imports_itself_by_a_detour() -> None:
    graph = {
        name: {m for m in imports(path, typing=False) if m in MODULES and m != name}
        for name, path in MODULES.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


@EVERY
def test_heavy_engines_stay_in_their_place(path: Path) -> None:
    where = str(path.relative_to(SRC))
    for package, place in HEAVY_ENGINES.items():
        if any(m.split(".")[0] == package for m in imports(path)):
            assert where.startswith(place)


@EVERY
def test_nothing_unpickles(path: Path) -> None:
    """One reader names pickle: it admits the pieces of numpy arrays and nothing else."""
    if path == SRC / "data" / "readers" / "cifar.py":
        return
    assert not imports(path) & {"pickle", "dill", "cloudpickle", "joblib"}
    assert "torch.load(" not in path.read_text()


@EVERY
def test_a_file_and_its_functions_can_be_read(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 350
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < 60, node.name


@pytest.mark.parametrize("words", [["--help"], ["methods"], ["models"], ["datasets"]])
def test_a_list_costs_no_torch(words: list[str]) -> None:
    code = (
        "import sys; from coterie.cli import main\n"
        f"sys.argv = ['coterie', *{words!r}]\n"
        "try:\n    main()\n"
        "except SystemExit as e:\n    assert not e.code\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
