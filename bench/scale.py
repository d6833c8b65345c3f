"""How time and memory grow with the number of clients: `python -m bench.scale`.

Every case runs in a process of its own. A round draws 100 clients and is timed as a run does it:
training, measuring, records and checkpoint, without a test of all clients. A grouping is timed
from the clients' answers on: their training grows with n whatever the server does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coterie import engines
from coterie.core.layout import Layout
from coterie.core.loop import run
from coterie.core.types import Replies, State, Task
from coterie.data.dataset import Data
from coterie.data.population import Population, partition
from coterie.engines.front import Front
from coterie.methods import find
from coterie.models import factory
from coterie.runs.records import RunFolder
from coterie.studies.run.plan import Plan
from coterie.studies.run.train_loop import Gathered, recording, train_loop
from coterie.tasks.signature import Histogram, Trajectory
from coterie.tasks.solver import Solver

SIZES = (100, 1_000, 10_000)
DRAWN = 100  # clients in a round
SAMPLES, CLASSES, GROUPS = 40, 10, 4
SOLVER = Solver(lr=0.05, batch=32, steps=20)
ROUNDS = 7  # that are timed, after one that warms up

# What is timed from the answers of all clients on: settings, and the rounds until it has happened.
GROUPINGS: dict[str, tuple[dict[str, Any], int]] = {
    "fedclust": ({}, 0),
    "kin": ({}, 0),
    "autocfl": ({"latest": 1}, 1),
    "cflgt": ({"pretrain": 0, "hopkins": 0.0, "silhouette": 0.0}, 1),
    "flhc": ({"rounds_before": 0}, 1),
    "dapfl": ({"fraction": 0.01}, 0),
}
DRAWING = ("fedavg", "fedclust", "ifca", "dapfl")


class Enough(Exception):  # noqa: N818
    """Enough rounds were timed."""


class Answers(Front):
    """A federation whose clients have all answered: only the server's work is left."""

    rows: Tensor  # (n, P)

    def ask(self, cohort: Tensor, task: Task, state: State, **send: Tensor) -> Replies:
        """The prepared answer to any question."""
        values = self.rows[cohort]
        if isinstance(task, Trajectory):  # 2 C numbers, as far apart as the rows are
            values = values[:, : 2 * CLASSES].reshape(len(cohort), 2, CLASSES)
        elif isinstance(task, Histogram):
            values = (100 * values[:, :CLASSES].abs()).round()
        return Replies(cohort, values, self.sizes[cohort], {"loss": values.flatten(1).norm(dim=1)})


def population(n: int) -> Population:
    """n clients of 28 x 28 Gaussian digits, whose labels are exchanged in four ways."""
    rng = torch.Generator().manual_seed(0)
    y = torch.arange(n * SAMPLES) % CLASSES
    x = torch.randn(n * SAMPLES, 1, 28, 28, generator=rng)
    for c in range(CLASSES):  # in place: these are the largest numbers here
        x[c::CLASSES] += torch.randn(1, 28, 28, generator=rng)
    data = Data("gauss", x, y, tuple(map(str, range(CLASSES))), None, None, peak=1.0)
    return partition(data, "iid+permutation", clients=n, scaling="none")


def layout() -> Layout:
    """Logistic regression, 784-10."""
    return Layout(factory.build("mclr", shape=(1, 28, 28), classes=CLASSES, seed=0))


def method(name: str, **settings: Any) -> Any:
    """A method with the solver of this benchmark."""
    cls: Any = find(name)
    return cls(solver=SOLVER, **settings)


def one_round(name: str, n: int, engine: str) -> dict[str, float]:
    """Seconds of a round in which 100 of n clients train."""
    people = population(n)
    m = method(name, fraction=DRAWN / n)
    choice = engines.settle(engine, 0, people, layout(), m)
    fed = engines.build(choice.name, people, layout(), 0, choice.workers)
    start = grouped(name, n, m, people) or m.init(fed.at(-1))
    fed.ledger.clear()
    before = forget()
    clock: list[tuple[float, float]] = []

    def tick(event: dict[str, Any]) -> None:
        if event["event"] == "round":
            clock.append((time.perf_counter(), time.process_time()))
            if len(clock) > ROUNDS:
                raise Enough

    with tempfile.TemporaryDirectory() as place, RunFolder(Path(place)) as folder:
        folder.begin("")
        plan = Plan(rounds=10**6, every=10**6)  # nobody is tested
        with contextlib.suppress(Enough):
            train_loop(Gathered(m, people, fed), plan, recording(folder, tick), folder, start)
    took = torch.tensor(clock, dtype=torch.float64).diff(dim=0)  # (rounds, 2)
    wall, cpu = took.median(0).values.tolist()
    return {"wall": wall, "cpu": cpu, "before": before}


def grouped(name: str, n: int, m: Any, people: Population) -> State | None:
    """FedClust's state after a grouping, without its training of n clients."""
    if name != "fedclust":
        return None
    return m.init(answering(people).at(-1))  # type: ignore[no-any-return]


def answering(people: Population) -> Answers:
    """The federation of these clients in which everybody has answered, by its group."""
    fed = Answers(people, layout(), classes=CLASSES, seed=0, sizes=people.sizes, names=people.names)
    rng = torch.Generator().manual_seed(1)
    group = torch.arange(len(people)) % GROUPS if people.group is None else people.group
    towards = 0.1 * torch.randn(int(group.max()) + 1, fed.layout.size, generator=rng)
    noise = 0.05 * torch.randn(len(people), fed.layout.size, generator=rng)
    fed.rows = fed.layout.initial + towards[group] + noise
    return fed


def one_grouping(name: str, n: int, engine: str) -> dict[str, float]:
    """Seconds of a grouping of n clients, from their answers on."""
    settings, rounds = GROUPINGS[name]
    fed = answering(population(n))
    before = forget()
    wall, cpu = time.perf_counter(), time.process_time()
    *_, end = run(method(name, **settings), fed, rounds)
    took = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    return took | {"before": before, "clusters": len(end.assign.unique())}


def memory(what: str) -> float:
    """MB of this process: VmRSS what it has, VmHWM the most it has had since `forget`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith(what))


def forget() -> float:
    """Take the memory in use as the most there has been: what follows is measured from here."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


CASES: dict[str, Callable[[str, int, str], dict[str, float]]] = {
    "round": one_round,
    "grouping": one_grouping,
}


def apart(what: str, name: str, n: int, engine: str) -> dict[str, float]:
    """One case, in a process of its own."""
    words = [sys.executable, "-m", "bench.scale", "--case", what, name, str(n), "--engine", engine]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(what: str, names: tuple[str, ...], engine: str) -> None:
    """Print how every method of a kind grows."""
    sizes = "".join(f"{f'n = {n:,}':>24}" for n in SIZES)
    print(f"\n{what:<10}{sizes}    growth: s   cpu s")
    print(f"{'':<10}" + f"{'s':>8}{'cpu s':>8}{'MB':>8}" * len(SIZES), flush=True)
    for name in names:
        print(f"{name:<10}", end="", flush=True)
        wall, cpu = [], []
        for n in SIZES:
            found = apart(what, name, n, engine)
            wall.append(found["wall"])
            cpu.append(found["cpu"])
            shown = (
                f"{found['wall']:8.3f}{found['cpu']:8.3f}{found['peak'] - found['before']:+8.0f}"
            )
            print(shown, end="", flush=True)
        print(f"{wall[-1] / wall[0]:9.2f}x{cpu[-1] / cpu[0]:8.2f}x", flush=True)


def main() -> None:
    """Print the tables, or run one case for whoever prints them."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--engine", default="auto")
    words.add_argument("--case", nargs=3, help=argparse.SUPPRESS)
    given = words.parse_args()
    if given.case:
        what, name, n = given.case
        found = CASES[what](name, int(n), given.engine)
        print(json.dumps(found | {"peak": memory("VmHWM")}))
        return
    print(
        f"{DRAWN} clients drawn, {SAMPLES} samples each, 20 steps of 32, logistic regression "
        f"784-10, engine {given.engine}, {torch.get_num_threads()} threads.\n"
        "s: wall time; cpu s: of this process without its workers; MB: its peak memory, + beyond "
        "the data. Growth: from the smallest n to the largest."
    )
    table("round", DRAWING, given.engine)
    table("grouping", tuple(GROUPINGS), given.engine)


if __name__ == "__main__":
    main()
