"""What each method sends: bytes down and up per client and round, counted where they pass.

`python -m coterie.studies.insight.costs` prints the table as Markdown.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from coterie.core.layout import Layout
from coterie.core.loop import run
from coterie.core.types import Asked, Method
from coterie.data.population import Population, partition
from coterie.engines.front import Front
from coterie.methods import METHODS, find
from coterie.studies.run.training import build_layout
from coterie.tasks.solver import Solver

CLIENTS, ROUNDS = 8, 8
# Short phases, so that every method has clustered well before the end; bytes do not care.
SHORT: dict[str, Any] = {
    "fraction": 1.0,
    "pretrain": 2,
    "rounds_before": 2,
    "latest": 3,
    "warmup_epochs": 1,
    "head_epochs": 1,
    "features": 4,
    "match_steps": 1,
    "retrain_steps": 1,
    "column": "group",
}


@dataclass(frozen=True)
class Cost:
    """What one client receives and sends, in bytes: in a usual round, and besides in a whole run.

    `besides` is all that is more than usual: messages before the first round, in the round that
    clusters, or every few rounds.
    """

    name: str
    model: int  # bytes of a model, d
    down: int  # in a usual round
    up: int
    besides_down: int  # over the whole run
    besides_up: int
    tasks: tuple[str, ...]  # the questions that were asked

    @property
    def ratio(self) -> tuple[float, float]:
        """A usual round in models: down and up."""
        return self.down / self.model, self.up / self.model


def costs_of(methods: Sequence[str] | None = None, rounds: int = ROUNDS) -> list[Cost]:
    """The costs of methods (default: all of METHODS), from a short run of each.

    >>> [cost.ratio for cost in costs_of(["local", "fedavg"], rounds=2)]
    [(0.0, 0.0), (1.0, 1.0)]
    """
    clients = partition("digits", "rotation", clients=CLIENTS, seed=0, public=1)
    layout = build_layout("cnn-s", clients.shape, clients.classes)
    return [count(name, clients, layout, rounds) for name in methods or METHODS]


def count(name: str, clients: Population, layout: Layout, rounds: int) -> Cost:
    """One method's costs, from the ledger of a run with everybody in every round."""
    fed = Front(
        clients, layout, classes=clients.classes, sizes=clients.sizes, public=clients.public
    )
    for _ in run(quick(name), fed, rounds):
        pass
    down, up = (per_round(fed.ledger, way, rounds) // len(clients) for way in ("down", "up"))
    usual_down, usual_up = (int(spent[1:].median()) for spent in (down, up))
    return Cost(
        name,
        layout.initial.nbytes,
        usual_down,
        usual_up,
        int(down.sum()) - rounds * usual_down,
        int(up.sum()) - rounds * usual_up,
        tuple(dict.fromkeys(asked.task for asked in fed.ledger)),
    )


def quick(name: str) -> Method:
    """A method with its own settings but hardly any training."""
    cls: Any = find(name)
    known = {f.name: f for f in fields(cls)}
    settings = {key: value for key, value in SHORT.items() if key in known}
    solver = cls().solver if "solver" in known else Solver()
    method: Method = cls(**settings, solver=replace(solver, lr=0.01, epochs=1, steps=1, batch=8))
    return method


def per_round(ledger: Sequence[Asked], way: str, rounds: int) -> torch.Tensor:
    """(rounds + 1,) bytes of all clients together, those before the first round in front."""
    spent = torch.zeros(rounds + 1, dtype=torch.long)
    for asked in ledger:
        spent[asked.round + 1] += getattr(asked, way).sum()
    return spent


def amount(size: int, model: int) -> str:
    """Bytes in models; what is less than a hundredth of one stays in bytes.

    >>> amount(0, 400), amount(400, 400), amount(1203, 400), amount(3, 400), amount(500, 400)
    ('0', '1 d', '3 d + 3 B', '3 B', '1.25 d')
    """
    whole, rest = divmod(size, model)
    if 100 * rest >= model:
        return f"{size / model:.2f} d"
    parts = [f"{whole} d"] if whole else []
    parts += [f"{rest} B"] if rest else []
    return " + ".join(parts) or "0"


def markdown(costs: Sequence[Cost], rounds: int = ROUNDS) -> str:
    """The table as a page."""
    d = costs[0].model
    head = f"""# What each method sends

Bytes to and from one client, counted in a run of {rounds} rounds in which everybody takes part:
{CLIENTS} clients on the digits, the network cnn-s. `d` is one model, here {d:,} bytes. A *usual
round* is the median one; *besides* is all that the {rounds} rounds cost on top of it: messages
before the first round, in the round that clusters, or every few rounds. Each method has its own
defaults, but clusters after two rounds. Tests are not counted.

Made by `python -m coterie.studies.insight.costs > docs/costs.md`.

| method | down, a usual round | up, a usual round | besides, down | besides, up | asked |
|---|---|---|---|---|---|
"""
    return head + "".join(f"{table_row(cost)}\n" for cost in costs)


def table_row(cost: Cost) -> str:
    """One line of the table."""
    sizes = (cost.down, cost.up, cost.besides_down, cost.besides_up)
    cells = (cost.name, *(amount(size, cost.model) for size in sizes), ", ".join(cost.tasks))
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.stdout.write(markdown(costs_of(sys.argv[1:] or None)))
