"""Which engine suits an experiment: a function of model, data, method and cores, never of a clock.

Timing at the start would make equal commands give unequal bits.
"""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from coterie.core.layout import Layout
from coterie.core.types import Method
from coterie.engines.chain import NotStackableError, chain
from coterie.engines.compiled.planning import planned
from coterie.tasks.solver import Solver

WORTH = 0.1  # estimated seconds of a round, above which other processes are worth their start
# Weights of a dense layer times samples in a mini-batch, above which the libraries' products are
# faster than ours: fitted on MLPs of 200 to 1,024 units, with AVX2.
LARGE = 20_000_000
# Seconds of a step's overhead and operations a second, on one core with AVX2: of plain PyTorch, by
# which the choice is made, and of the engines that do the same otherwise (docs/performance.md).
PLAIN = (1.5e-4, 3e10)
PACE = {"stacked": (3e-5, 2.5e10), "compiled": (2e-5, 9e10)}


@dataclass(frozen=True)
class Choice:
    """An engine, how many processes it has, and why it was chosen."""

    name: str
    workers: int
    why: str
    inner: str = ""  # of Ray, the engine inside its actors: stacked or compiled

    def __str__(self) -> str:
        side = f" in {self.workers} processes" if self.workers > 1 else ""
        return f"{self.name}{side}: {self.why}"


def cores() -> int:
    """The cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def choose(
    layout: Layout, method: Method, sizes: Tensor, sample: tuple[int, ...], available: int
) -> Choice:
    """The fastest engine that is known for such work.

    A method without the hyper-parameters that most have is taken to be a usual one.
    """
    cohort, seconds = work(layout, method, sizes, sample)
    if seconds < WORTH:
        return Choice("serial", 1, "a round is a moment's work")
    workers = max(1, min(available, cohort))
    if getattr(method, "solver", Solver()).privacy.on:
        why = "under noise every sample has a gradient of its own"
        return Choice("pool" if workers > 1 else "serial", workers, why)
    try:
        chain(layout)
    except NotStackableError as why:
        if workers == 1:
            return Choice("serial", 1, f"one core, and the model cannot be stacked: {why}")
        return Choice("pool", workers, f"the model cannot be stacked: {why}")
    name, but = inner_engine(layout, getattr(method, "solver", Solver()), sample)
    return Choice(name, workers, f"a straight line of layers{but}")


def inner_engine(layout: Layout, solver: Solver, sample: tuple[int, ...]) -> tuple[str, str]:
    """What trains a straight line of layers fastest: compiled, or else stacked, and why."""
    try:
        made = planned(layout, sample)
    except NotStackableError as why:
        return "stacked", f", not compiled: {why}"
    if made.widest * (solver.batch or LARGE) > LARGE:
        return "stacked", ", with products so large that a library's are faster than compiled ones"
    return "compiled", ""


def inside_actors(layout: Layout, method: Method, sample: tuple[int, ...]) -> str:
    """The engine inside the actors of Ray; of a network that is no such line, one that says so."""
    return inner_engine(layout, getattr(method, "solver", Solver()), sample)[0]


def work(
    layout: Layout, method: Method, sizes: Tensor, sample: tuple[int, ...], engine: str = "serial"
) -> tuple[int, float]:
    """How many clients a round asks, and roughly how many seconds of one core they train."""
    solver: Solver = getattr(method, "solver", Solver())
    cohort = max(1, round(float(getattr(method, "fraction", 1.0)) * len(sizes)))
    overhead, rate = PACE.get(engine, PLAIN)
    samples = float(sizes.mean()) * cohort
    batch = solver.batch or samples / cohort
    steps = cohort * solver.steps if solver.steps else solver.epochs * samples / batch
    return cohort, steps * (overhead + 6 * batch * products(layout, sample) / rate)


def products(layout: Layout, sample: tuple[int, ...]) -> int:
    """Multiplications of one sample's way through the network's weighty layers."""
    net, count = copy.deepcopy(layout).module(layout.initial), 0

    def see(part: nn.Module, _: object, out: object) -> None:
        nonlocal count
        weight = getattr(part, "weight", None)
        if isinstance(out, Tensor) and isinstance(weight, Tensor) and weight.ndim > 1:
            count += out.numel() * weight[0].numel()

    for part in net.modules():
        part.register_forward_hook(see)
    with torch.no_grad():
        net(torch.zeros(1, *sample, dtype=layout.dtype))
    return count
