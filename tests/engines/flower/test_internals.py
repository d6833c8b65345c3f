"""What lies below Flower's public interface is reached through one file, and is there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from coterie.engines.flower import internals

FILE = Path(internals.__file__)
PUBLIC = {"flwr", "flwr.app", "flwr.clientapp", "flwr.serverapp"}
OURS = sorted(path for path in FILE.parents[2].rglob("*.py") if path != FILE)


def taken(path: Path) -> Iterator[tuple[str, str]]:
    """Every name that a file takes from Flower: its module, and what it is called there."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


NEEDED = [(module, name) for module, name in taken(FILE) if module.split(".")[0] == "flwr"]


@pytest.mark.parametrize(("module", "name"), NEEDED, ids=lambda text: text)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_flower_has_what_is_needed_of_it(module: str, name: str) -> None:
    try:
        found = getattr(import_module(module), name)
    except AttributeError:
        found = import_module(f"{module}.{name}")
    assert found is not None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("flwr.superlink.main", "create_app"),
        ("flwr.supercore.heartbeat", "HEARTBEAT_DEFAULT_INTERVAL"),
        ("flwr.supernode.fleet_http_connection", "HEARTBEAT_DEFAULT_INTERVAL"),
        ("flwr.supernode.start_client_internal", "time"),
    ],
)
def test_what_is_replaced_in_flowers_programs_is_there(module: str, name: str) -> None:
    assert hasattr(import_module(module), name)


@pytest.mark.parametrize("path", OURS, ids=lambda path: str(path.relative_to(FILE.parents[2])))
def test_nobody_else_reaches_below_the_public_interface(path: Path) -> None:
    below = {m for m, _ in taken(path) if m.split(".")[0] == "flwr"} - PUBLIC
    assert below == set()
