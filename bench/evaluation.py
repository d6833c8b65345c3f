"""What the evaluation of every client adds to a round: `python -m bench.evaluation W1`.

Every client is tested on as many samples as it trains on, which is more than usual. FedAvg, where
all clients hold one model, and the same clients each with a model of its own, where none can be
read together.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace

import torch

import coterie as ct
from bench.workloads import CLASSES, SEED, WORKLOADS
from coterie import engines
from coterie.core.loop import evaluate


def main() -> None:
    """Print the seconds of a round, of an evaluation, and its share of both."""
    parser = argparse.ArgumentParser(prog="python -m bench.evaluation", description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS, nargs="?", default="W1")
    parser.add_argument("--repeat", type=int, default=3)
    asked = parser.parse_args()
    workload = WORKLOADS[asked.workload]
    layout = ct.Layout(workload.network())
    given = [workload.client(i) for i in range(workload.clients)]
    population = ct.Population.of([(*c, *c) for c in given], CLASSES)
    solver = ct.Solver(
        lr=workload.lr,
        optimiser=ct.SGD(momentum=workload.momentum),
        batch=workload.batch,
        epochs=workload.epochs,
    )
    method = ct.FedAvg(solver)
    chosen = engines.settle("auto", 0, population, layout, method)
    fed = engines.build(chosen.name, population, layout, SEED, chosen.workers)
    state = next(ct.run(method, fed, 0))
    rounds, shared, own = [], [], []
    for turn in range(asked.repeat + 1):
        began = time.perf_counter()
        *_, state = ct.run(method, fed, turn + 1, state)
        trained = time.perf_counter()
        evaluate(method, state, fed)
        tested = time.perf_counter()
        everyone = torch.arange(workload.clients)
        apart = replace(state, models=state.models.repeat(workload.clients, 1), assign=everyone)
        again = time.perf_counter()
        evaluate(method, apart, fed)
        if turn:  # the first one warms up
            rounds.append(trained - began)
            shared.append(tested - trained)
            own.append(time.perf_counter() - again)
    fed.close()
    for name, seconds in (("one model for all", shared), ("a model each", own)):
        spent, test = statistics.median(rounds), statistics.median(seconds)
        print(
            f"{workload.name}, {name}: round {spent:.3f} s, evaluation {test:.3f} s, "
            f"{test / (spent + test):.1%} of both"
        )


if __name__ == "__main__":
    main()
