"""Where the time of one compiled step goes, kernel by kernel: `python -m bench.steps W1`.

The program of a workload with a reading of the processor's clock around every kernel; of some
trainings on one thread, the least of each kernel. The clock is taken to have run in kernels alone,
so that what is done between them counts with them.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from typing import Any

import numpy as np
import torch
from llvmlite import ir

import coterie as ct
from bench.workloads import CLASSES, WORKLOADS, Workload
from coterie.engines.compiled.host import check_machine
from coterie.engines.compiled.loops import POINTER, Function
from coterie.engines.compiled.network import Network
from coterie.engines.compiled.objects import Machine, compiled
from coterie.engines.compiled.planning import planned
from coterie.engines.compiled.program import Program
from coterie.engines.compiled.values import INT, Array, Value
from coterie.tasks.solver import Descent

ROOM = 128  # kernels


class Timed(Program):
    """A program that adds up how long each of its kernels runs."""

    def call(self, f: Function, name: str, *given: Value | Array | int) -> None:
        """Run a kernel between two readings of the clock."""
        known = self.module.globals
        if "clocks" not in known:
            room = ir.ArrayType(INT, ROOM)
            ir.GlobalVariable(self.module, room, "clocks").initializer = ir.Constant(room, None)
            ir.Function(self.module, ir.FunctionType(INT, []), "llvm.readcyclecounter")
        build, clock = f.build, known["llvm.readcyclecounter"]
        began = build.call(clock, [])
        super().call(f, name, *given)
        spent = build.sub(build.call(clock, []), began)
        first = build.ptrtoint(known["clocks"], INT)
        offset = ir.Constant(INT, 8 * list(self.kernels).index(name))
        place = build.inttoptr(build.add(first, offset), POINTER)
        build.store(build.add(build.load(place, typ=INT), spent), place)


def measure(workload: Workload, repeat: int) -> tuple[float, dict[str, float]]:
    """Microseconds of a step, and of each kernel in it."""
    layout = ct.Layout(workload.network())
    program = Timed(planned(layout, workload.shape), check_machine())
    machine: Any = Machine(compiled(str(program), program.processor), program.processor)
    address = machine.loaded.engine.get_global_value_address("clocks")
    clocks = (ctypes.c_int64 * ROOM).from_address(address)
    network = Network(program.plan, machine)
    client = ct.Population.of([workload.client(0)], CLASSES, test_share=0.0)[0]
    sgd = ct.SGD(momentum=workload.momentum)
    solver = ct.Solver(lr=workload.lr, optimiser=sgd, batch=workload.batch, epochs=1)
    cycles, micros, ticks = [], [], []
    for _ in range(repeat):
        ctypes.memset(clocks, 0, ctypes.sizeof(clocks))
        descent = Descent(solver, client, layout.initial, torch.Generator().manual_seed(0))
        began, tick = time.perf_counter_ns(), time.thread_time_ns()
        _, steps = network.train(descent, layout)
        ticks.append((time.thread_time_ns() - tick) / 1e3 / steps)
        micros.append((time.perf_counter_ns() - began) / 1e3 / steps)
        cycles.append(np.array(clocks[: len(program.kernels)]) / steps)
    best = int(np.argmin(micros))  # nobody else ran meanwhile
    rate = cycles[best].sum() / micros[best]
    least = np.min(cycles, 0) / rate
    return min(ticks), dict(zip(program.kernels, least.tolist(), strict=True))


def main() -> None:
    """Print the kernels that take most."""
    parser = argparse.ArgumentParser(prog="python -m bench.steps", description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--repeat", type=int, default=20)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    workload = WORKLOADS[asked.workload]
    step, kernels = measure(workload, asked.repeat)
    whole = sum(kernels.values())
    print(f"{workload.name}: {step:.0f} us a step, {whole:.0f} of them in kernels")
    for name, micros in sorted(kernels.items(), key=lambda item: -item[1])[:16]:
        print(f"  {micros:8.2f} us  {micros / whole:6.1%}  {name}")


if __name__ == "__main__":
    main()
