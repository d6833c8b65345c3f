"""What a run costs beside its training: `python -m bench.startup`; `--engine`: a cached engine.

The CPU time, of a process and all its children, of `coterie run --rounds 1` with its records and
its page, beside that of `import torch` alone and of the training alone: the same round in a
process that has everything imported, has trained it before, and writes nothing. Bytecode is kept
from one process to the next, as it is unless somebody forbids it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TRAINING = """
import os, sys
from coterie.cli import options
from coterie.studies.run import experiment, training
from coterie.studies.run.plan import Plan
import torch

config = options.experiment(sys.argv[1:], {"train.rounds": 1})
torch.set_num_threads(config.engine.threads)
for turn in range(2):  # the first one warms up
    _, clients = experiment.simulated(config)
    before = sum(os.times()[:4])
    training.train(clients, Plan.of(config), "")
print(sum(os.times()[:4]) - before)
"""

# What a run has before it builds its engine is there; what the engine brings with it is counted.
ENGINE = """
import gc, time
from coterie.__main__ import PATIENCE
gc.set_threshold(*PATIENCE)  # as commands have it
import coterie.studies.run.experiment, coterie.engines.choice, coterie.engines.front
import torch
from coterie.data.population import Population
from coterie.engines import build
from coterie.studies.run.training import build_layout

x, y = torch.rand(8, 1, 28, 28), torch.arange(8)
clients, layout = Population.of([(x, y)], 10), build_layout("lenet5", (1, 28, 28), 10)
cpu, wall = time.process_time(), time.perf_counter()
build("compiled", clients, layout, 0)
print(time.process_time() - cpu, time.perf_counter() - wall)
"""


def main() -> None:
    """Print the times that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.startup", description=__doc__)
    parser.add_argument("settings", nargs="*", help="of the run, as method=fedavg")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--engine", action="store_true", help="of LeNet-5, compiled before")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(folder) / "bytecode")
        if asked.engine:
            engine(asked.repeat)
        else:
            run(asked.settings, asked.repeat, Path(folder))


def engine(repeat: int) -> None:
    """Print what a compiled engine takes whose code is found in the cache."""
    found = [said(ENGINE) for _ in range(repeat + 1)][1:]  # the first one compiles
    for name, times in zip(("CPU", "wall"), zip(*found, strict=True), strict=True):
        spread = f"{1000 * min(times):.0f} to {1000 * max(times):.0f}"
        print(f"a cached engine  {1000 * statistics.median(times):.0f} ms of {name} ({spread})")


def run(settings: list[str], repeat: int, folder: Path) -> None:
    """Print the three times and their ratio."""
    found: dict[str, list[float]] = {"import torch": [], "training": [], "coterie run": []}
    for turn in range(repeat + 1):
        command = ["run", *settings, "--rounds", "1", "--out", str(folder / str(turn))]
        found["import torch"].append(spent("-c", "import torch"))
        found["coterie run"].append(spent("-m", "coterie", *command))
        found["training"] += said(TRAINING, *settings)
    for times in found.values():
        del times[0]  # it wrote the bytecode
    middle = {name: statistics.median(times) for name, times in found.items()}
    for name, times in found.items():
        print(f"{name:<13} {middle[name]:.2f} s of CPU ({min(times):.2f} to {max(times):.2f})")
    rest = middle["import torch"] + middle["training"]
    print(f"ratio         {middle['coterie run'] / rest:.2f}")


def spent(*arguments: str) -> float:
    """The CPU seconds of a Python process and its children."""
    before = sum(os.times()[2:4])
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return sum(os.times()[2:4]) - before


def said(script: str, *arguments: str) -> list[float]:
    """The numbers that a script prints."""
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [float(word) for word in done.stdout.split()]


if __name__ == "__main__":
    main()
