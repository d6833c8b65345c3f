"""Who may import whom. A rule that is not tested does not hold for long."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "coterie"
EVERYBODY = {"types", "layout", "mount", "rng", "errors", "bounds"}
VOCABULARY = {"distance", "grouping", "voting", "affinity", "mixing", "checks", "drift", "rows"}
TASKS = {"client", "course", "solver", "signature", "score", "variants"}
MAY: dict[str, set[str]] = {
    **{name: EVERYBODY | {"client"} for name in EVERYBODY},
    **{name: VOCABULARY | {"errors"} for name in VOCABULARY},
    **dict.fromkeys(TASKS, EVERYBODY | TASKS | VOCABULARY),
    "methods": EVERYBODY | TASKS | VOCABULARY | {"methods", "merge"},
    "merge": EVERYBODY | VOCABULARY,
    "engine": EVERYBODY | TASKS | VOCABULARY | {"engine", "wire", "storage"},
    "wire": EVERYBODY,
    "loop": EVERYBODY,
    "checkpoint": EVERYBODY | {"storage"},
    "storage": {"errors"},
    "history": set(),
    "data": {"data", "client", "rng", "errors", "bounds", "storage"},
    "config": {"config", "data", "methods", "errors", "bounds", "zoo", "engine", "codes"},
    "networks": {"networks", "errors"},
    "zoo": {"errors"},
}
HEAVY_ENGINES = {"flwr": "engine/flower", "ray": "engine/ray.py"}


def imports(path: Path, *, typing: bool = False) -> set[str]:
    """The modules a file imports; those for type checkers alone are left out."""
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
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


FILES = sorted(SRC.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SRC)))
def test_a_module_imports_only_what_it_may(path: Path) -> None:
    home = path.relative_to(SRC).parts[0].removesuffix(".py")
    if home not in MAY:
        return
    used = {m.split(".")[1] for m in imports(path) if m.startswith("coterie.")}
    inside = {p.stem for p in SRC.iterdir()}
    assert (used & inside) - MAY[home] - {home} == set()


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SRC)))
def test_heavy_engines_stay_in_their_place(path: Path) -> None:
    where = str(path.relative_to(SRC))
    for package, place in HEAVY_ENGINES.items():
        if any(m.split(".")[0] == package for m in imports(path)):
            assert where.startswith(place)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SRC)))
def test_nothing_unpickles(path: Path) -> None:
    """One reader names pickle: it admits the pieces of numpy arrays and nothing else."""
    if path.name == "read_cifar.py":
        return
    assert not imports(path) & {"pickle", "dill", "cloudpickle", "joblib"}
    assert "torch.load(" not in path.read_text()


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
