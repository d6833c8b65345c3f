"""Seconds per round of the Ray engine beside the pool's, with as many workers and the same inside.

1,000 clients with a small network and few samples each: what is measured is mostly the handing out.
Both have started and answered once before; then they take turns, so that a busy machine is busy
for both. The ratio is that of the medians; the answers are compared to the bit.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import torch
from torch import nn

import coterie as ct
from coterie.core.types import State
from coterie.engines.front import Front
from coterie.engines.question import Backend
from coterie.engines.ray import Actors
from coterie.engines.serial import Serial
from coterie.engines.stacked.backend import Stacked
from coterie.engines.workers.backend import Workers
from coterie.engines.workers.processes import Processes

FEATURES, CLASSES, LIMIT = 64, 10, 1.3


def people(clients: int, samples: int) -> ct.Population:
    """Clients with random samples; the last has twice as many as the first."""
    rng = torch.Generator().manual_seed(0)
    given = []
    for i in range(clients):
        m = samples * 2 // 3 + samples * 2 // 3 * i // clients
        x, y = torch.randn(m, FEATURES, generator=rng), torch.randint(CLASSES, (m,), generator=rng)
        given.append((x, y))
    return ct.Population.of(given, CLASSES, test_share=0.0)


def main() -> int:
    """Print a line for each engine inside; 1 if Ray takes more than it may."""
    parser = argparse.ArgumentParser(prog="python -m bench.ray_pool", description=__doc__)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=60, help="of a client, on average")
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9, help="counted")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(FEATURES, asked.hidden), nn.ReLU(), nn.Linear(asked.hidden, CLASSES)
    )
    population = people(asked.clients, asked.samples)
    method = ct.FedAvg(ct.Solver(lr=0.05, batch=10))
    layout = ct.Layout(net)
    backends: dict[str, Serial] = {
        "serial": Serial(),
        "stacked": Stacked(layout, population[0].x[:4], workers=asked.workers),
    }

    def federation(backend: Backend) -> Front:
        return Front(population, layout, classes=CLASSES, sizes=population.sizes, backend=backend)

    worst = 0.0
    for inside, inner in backends.items():
        seconds: dict[str, list[float]] = {"pool": [], "ray": []}
        with (
            federation(Workers(inner, Processes(asked.workers))) as pool,
            federation(Workers(inner, Actors(asked.workers))) as ray,
        ):
            states: dict[str, State] = {}
            feds = {"pool": pool, "ray": ray}
            for turn in range(asked.rounds + 1):
                for name, fed in feds.items():
                    state = states.get(name)
                    began = time.perf_counter()
                    *_, states[name] = ct.run(method, fed, turn + 1, state)
                    if turn:
                        seconds[name].append(time.perf_counter() - began)
        assert torch.equal(states["pool"].models, states["ray"].models)
        middle = {name: statistics.median(s) for name, s in seconds.items()}
        ratio = middle["ray"] / middle["pool"]
        worst = max(worst, ratio)
        print(
            f"{asked.clients:,} clients, {asked.workers} workers, {inside} inside: "
            f"pool {middle['pool']:.3f} s, ray {middle['ray']:.3f} s, ratio {ratio:.2f} "
            f"(at most {LIMIT})",
            flush=True,
        )
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
