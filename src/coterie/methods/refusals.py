"""What a method's formulas cannot have: said by the method as data, checked before anything runs.

A class says it in `refuses`, with the reason: `optimiser` (any but SGD), `nesterov`, `clip`,
`server` (an optimiser of the server's) or `merge` (a robust merge, or flagging). Experiment files
are checked against the same words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from coterie.core.errors import ConfigError
from coterie.core.types import Method
from coterie.tasks.optimiser import SGD
from coterie.tasks.solver import Solver
from coterie.words.server import ServerOptimiser


class Refused(NamedTuple):
    """A setting that a method cannot have, and why."""

    setting: str
    given: object
    why: str


def refusals(method: object) -> Iterator[Refused]:
    """What a method was given and refuses."""
    refuses: Mapping[str, str] = getattr(method, "refuses", {})
    solver: Any = getattr(method, "solver", None)
    given = in_solver(solver) if isinstance(solver, Solver) else {}
    server = getattr(method, "server", None)
    if isinstance(server, ServerOptimiser) and server.kind != "none":
        given["server"] = server
    if isinstance(server, ServerOptimiser) and (server.robust or server.flag):
        given["merge"] = server.merge
    for setting, value in given.items():
        if setting in refuses:
            yield Refused(setting, value, refuses[setting])


def in_solver(solver: Solver) -> dict[str, object]:
    """What of a recipe some methods cannot have, where it is not as usual."""
    optimiser, found = solver.optimiser, dict[str, object]()
    if not isinstance(optimiser, SGD):
        found["optimiser"] = optimiser
    elif optimiser.nesterov:
        found["nesterov"] = True
    if solver.clip:
        found["clip"] = solver.clip
    return found


def expect_possible(method: Method) -> None:
    """Refuse a method that was given what its formulas cannot have."""
    found = list(refusals(method))
    if found:
        raise ConfigError(
            f"{type(method).__name__} cannot have "
            + ", ".join(f"{one.setting} = {one.given}" for one in found),
            code="C048",
            why="\n".join(dict.fromkeys(one.why for one in found)),
            fix=f"leave out {', '.join(one.setting for one in found)}, or choose another method",
        )
