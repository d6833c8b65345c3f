"""What a run costs beside its training: `python -m bench.startup`.

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
from coterie.studies import experiment, training
from coterie.studies.train_loop import Plan
import torch

config = options.experiment(sys.argv[1:], {"train.rounds": 1})
torch.set_num_threads(config.engine.threads)
for turn in range(2):  # the first one warms up
    _, clients = experiment.simulated(config)
    before = sum(os.times()[:4])
    training.train(clients, Plan.of(config), "")
print(sum(os.times()[:4]) - before)
"""


def main() -> None:
    """Print the three times and their ratio."""
    parser = argparse.ArgumentParser(prog="python -m bench.startup", description=__doc__)
    parser.add_argument("settings", nargs="*", help="of the run, as method=fedavg")
    parser.add_argument("--repeat", type=int, default=5)
    asked = parser.parse_args()
    found: dict[str, list[float]] = {"import torch": [], "training": [], "coterie run": []}
    with tempfile.TemporaryDirectory() as folder:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(folder) / "bytecode")
        for turn in range(asked.repeat + 1):
            out = str(Path(folder) / str(turn))
            run = ["-m", "coterie", "run", *asked.settings, "--rounds", "1", "--out", out]
            found["import torch"].append(spent("-c", "import torch"))
            found["coterie run"].append(spent(*run))
            found["training"].append(trained(asked.settings))
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


def trained(settings: list[str]) -> float:
    """The CPU seconds of the training alone."""
    command = [sys.executable, "-c", TRAINING, *settings]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
