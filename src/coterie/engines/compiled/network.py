"""A compiled network at work: memory for its buffers, checks before any pointer is used, calls."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.core.layout import Layout
from coterie.engines.compiled.objects import Machine, machine
from coterie.engines.compiled.plan import Buffer, Plan
from coterie.engines.compiled.settings import RATES, READING, ROWS, WIDE
from coterie.tasks.optimiser import SGD
from coterie.tasks.solver import Descent

TYPES: dict[str, Any] = {"array": np.float32, "smalls": np.int32, "ints": np.int64}
LINE = 64  # bytes: where buffers begin
ROOM = 1 << 24  # numbers that the last layer is given at most, of all samples: 64 MB
TILE = 8  # samples that are computed beyond the last at most, and never used

Memory = Callable[[str, int], NDArray[Any]]


class UnfitError(ValueError):
    """Data that compiled code must not see; the reference will say what is wrong with them."""


def memory(kind: str, n: int) -> NDArray[Any]:
    """n zeros at the beginning of a cache line, and room for a vector that reads beyond them."""
    size = np.dtype(TYPES[kind]).itemsize
    raw = np.zeros((n + WIDE) * size + LINE, np.uint8)
    first = -raw.ctypes.data % LINE
    numbers: NDArray[Any] = raw[first : first + (n + WIDE) * size].view(TYPES[kind])
    return numbers[:n]


class Workspace:
    """The buffers of one thread, for mini-batches up to a size."""

    def __init__(self, plan: Plan, capacity: int, allot: Memory) -> None:
        self.capacity, self.plan, self.allot = capacity, plan, allot
        self.held = [self.make(buffer) for buffer in plan.buffers.values()]
        self.buffers = pointers(self.held)
        self.rows: dict[str, NDArray[Any]] = {}
        for name in ROWS[:2]:
            self.row(name)

    def make(self, buffer: Buffer) -> NDArray[Any]:
        """The memory of one buffer."""
        return self.allot(buffer.kind, buffer.each * (self.capacity + TILE) + buffer.once)

    def row(self, name: str) -> NDArray[Any]:
        """A row in the kernels' order; those that few trainings need are made when they do."""
        if name not in self.rows:
            self.rows[name] = self.allot("array", self.plan.size)
            self.places = pointers([self.rows.get(row, self.rows["w"]) for row in ROWS])
        return self.rows[name]


def pointers(arrays: Sequence[NDArray[Any]]) -> Any:
    """Where arrays lie, as the compiled code wants to be told."""
    return (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))


class Network:
    """The compiled code of a plan. Each thread has memory of its own."""

    def __init__(self, plan: Plan, machine: Machine, allot: Memory = memory) -> None:
        self.plan, self.machine, self.allot = plan, machine, allot
        self.order = torch.from_numpy(plan.order)
        self.back = torch.empty_like(self.order)  # where each number of PyTorch's row is in theirs
        self.back[self.order] = torch.arange(len(self.order))
        self.spaces = threading.local()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "spaces"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, spaces=threading.local())
        if not self.machine.runs:  # it comes from where vectors are longer
            self.machine = machine(self.plan)[0]

    def workspace(self, batch: int) -> Workspace:
        """This thread's memory, large enough for such mini-batches."""
        space: Workspace | None = getattr(self.spaces, "held", None)
        if space is None or space.capacity < batch:
            space = self.spaces.held = Workspace(self.plan, batch, self.allot)
        return space

    # -- training ---------------------------------------------------------------------------------

    def train(self, descent: Descent, layout: Layout) -> tuple[Tensor, int]:
        """What `Descent.run_single` gives, within rounding: all steps in one call."""
        solver, client = descent.solver, descent.client
        if descent.weights is not None:
            raise UnfitError("its samples count by weights, which is not compiled")
        x, y = self.checked(client.x), client.y
        self.check_labels(y, len(x))
        learns = self.learns(layout.mask(descent.train))
        sgd = solver.optimiser
        if type(sgd) is not SGD or sgd.nesterov or solver.clip:
            return self.stepwise(descent, layout, learns)
        plans = list(descent.passes(layout))
        sizes = np.array(list(chain.from_iterable(s for (_, s), _ in plans)), np.int64)
        if not len(sizes):
            return descent.start.clone(), 0
        seen = torch.cat([order for (order, _), _ in plans])
        before = [one[0] for _, one in plans if one is not None]
        inner = torch.cat(before) if before else seen
        for order in (seen, inner) if before else (seen,):
            self.check_order(order, sizes, len(x))
        space = self.workspace(max(int(sizes.max()), READING))
        self.fill(space, "w", descent.start)
        space.row("velocity").fill(0)
        terms = bool(solver.prox) or descent.shift is not None
        if terms:
            self.fill(space, "anchor", descent.start if descent.anchor is None else descent.anchor)
            self.fill(space, "shift", descent.shift)
        if solver.meta:
            space.row("there")
            space.row("spare").fill(0)
        ready = self.head_alone(learns, len(x)) and len(seen) > len(x)
        if ready:  # all that it learns from, once instead of in every step
            x = self.given(space, x, self.plan.features)
        numbers = (solver.lr, sgd.momentum, sgd.weight_decay, solver.prox, solver.meta, terms)
        rates = np.array(numbers, np.float32)
        assert len(rates) == len(RATES)
        self.machine.train(
            space.buffers,
            space.places,
            x.data_ptr(),
            y.data_ptr(),
            seen.data_ptr(),
            inner.data_ptr(),
            sizes.ctypes.data,
            len(sizes),
            learns.ctypes.data,
            rates.ctypes.data,
            ready,
        )
        return self.row(space), len(sizes)

    def head_alone(self, learns: NDArray[np.int64], n: int) -> bool:
        """Whether the last layer alone learns, and there is room for what it is given."""
        body = learns[: -len(self.plan.stages[-1].tensors)]
        return 0 < n * self.plan.features <= ROOM and not body.any()

    def fill(self, space: Workspace, name: str, row: Tensor | None) -> None:
        """Put a row into the kernels' order; None is zero."""
        to = space.row(name)
        if row is None:
            to.fill(0)
            return
        if row.shape != to.shape or row.dtype != torch.float32 or row.device.type != "cpu":
            raise UnfitError(f"{name} is {tuple(row.shape)} of {row.dtype}")
        row = row.contiguous()
        self.machine.arrange(row.data_ptr(), to.ctypes.data)

    def row(self, space: Workspace) -> Tensor:
        """What was trained, in PyTorch's order."""
        row = torch.empty(self.plan.size)
        self.machine.restore(space.row("w").ctypes.data, row.data_ptr())
        return row

    def stepwise(
        self, descent: Descent, layout: Layout, learns: NDArray[np.int64]
    ) -> tuple[Tensor, int]:
        """One step after another: compiled gradients, and a step that is not."""
        solver, x, y = descent.solver, descent.client.x, descent.client.y
        net = Gradients(self, descent.start, layout.mask(descent.train), learns)
        state = solver.optimiser.init(net.grad)
        anchor = (descent.start if descent.anchor is None else descent.anchor)[self.order]
        shift = None if descent.shift is None else descent.shift[self.order]
        taken = 0
        for i, before in descent.plan(layout):
            inner = None if before is None else (x[before], y[before])
            solver.step(net, state, anchor, (x[i], y[i]), inner, shift)
            taken += 1
        return net.w[self.back], taken

    # -- reading ----------------------------------------------------------------------------------

    def read(self, row: Tensor, sets: Sequence[Tensor]) -> list[Tensor]:
        """(N, K) the logits of one model for each of some sets of samples."""
        space = self.workspace(READING)
        self.fill(space, "w", row)
        return [self.given(space, self.checked(x)) for x in sets]

    def given(self, space: Workspace, x: Tensor, features: int = 0) -> Tensor:
        """(N, K) what the model in `space` says of samples, or so many numbers as its features."""
        y, order = torch.empty(len(x), features or self.plan.outputs), torch.arange(len(x))
        if len(x):
            places = (x.data_ptr(), order.data_ptr(), len(x), y.data_ptr())
            w = space.row("w").ctypes.data
            self.machine.read(space.buffers, w, *places, bool(features))
        return y

    # -- checks -----------------------------------------------------------------------------------

    def checked(self, x: Tensor) -> Tensor:
        """Samples that the code may read."""
        if tuple(x.shape[1:]) != self.plan.sample or x.dtype != torch.float32:
            raise UnfitError(f"samples {tuple(x.shape)} of {x.dtype}")
        if x.device.type != "cpu":
            raise UnfitError(f"samples on {x.device}")
        return x.contiguous()

    def check_labels(self, y: Tensor, n: int) -> None:
        """Labels that the code may write at."""
        if not n or y.shape != (n,) or y.dtype != torch.long or not y.is_contiguous():
            raise UnfitError(f"labels {tuple(y.shape)} of {y.dtype}")
        if int(y.numpy().view(np.uint64).max()) >= self.plan.outputs:  # or below zero
            raise UnfitError(f"labels outside [0, {self.plan.outputs})")

    def check_order(self, order: Tensor, sizes: NDArray[np.int64], n: int) -> None:
        """Samples that there are, in mini-batches that use each entry once."""
        if len(order) != sizes.sum() or sizes.min() < 1:
            raise UnfitError("mini-batches of other sizes than said")
        if int(order.numpy().view(np.uint64).max()) >= n:  # one below zero is very large
            raise UnfitError(f"samples outside [0, {n})")

    def learns(self, mask: Tensor | None) -> NDArray[np.int64]:
        """Of each tensor, whether it learns."""
        starts = [s for stage in self.plan.stages for s in stage.places]
        if mask is None:
            return np.ones(len(starts), np.int64)
        found = np.array([int(mask[s.start]) for s in starts], np.int64)
        if any((mask[s] != learns).any() for s, learns in zip(starts, found, strict=True)):
            raise UnfitError("parts of a tensor learn, and others do not")
        return found


class Gradients:
    """A network as a solver steps it: its numbers and gradients in the kernels' order."""

    exact = False  # another order of sums has rounded otherwise already

    def __init__(
        self, network: Network, row: Tensor, mask: Tensor | None, learns: NDArray[np.int64]
    ) -> None:
        self.network, self.learns = network, learns
        self.space = network.workspace(READING)
        network.fill(self.space, "w", row)
        self.w = torch.from_numpy(self.space.row("w"))
        self.grad = torch.from_numpy(self.space.row("velocity"))
        self.mask = None if mask is None else mask[network.order]

    def gradient(self, x: Tensor, y: Tensor) -> None:
        """Put the gradient of the mean cross-entropy on these samples into `grad`."""
        x = self.network.checked(x)
        self.network.check_labels(y, len(x))
        space = self.network.workspace(len(x))  # a larger one keeps the rows of this one
        self.grad.zero_()
        order = torch.arange(len(x))
        rows = [self.w.numpy(), self.grad.numpy(), space.row("there")]
        self.network.machine.gradient(
            space.buffers,
            pointers(rows),
            x.data_ptr(),
            y.data_ptr(),
            order.data_ptr(),
            len(x),
            self.learns.ctypes.data,
        )

    def clip(self, norm: float) -> None:
        """Shorten the gradient to this norm, where it is longer."""
        self.grad.mul_((norm / (self.grad.norm() + 1e-6)).clamp(max=1))
