"""Who finds the planted groups: writes docs/planted.md. Run it with `make planted`.

Digits among 20 clients; two tables. The first asks of the methods that look for clusters how many
clients they place correctly, over five seeds. The second gives the accuracy of every method.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

import torch

import coterie as ct
from coterie.methods import METHODS, find

PAGE = Path(__file__).with_name("planted.md")
SETTINGS = {
    "labels, balanced": "label-groups",
    "labels, imbalanced": "label-groups+quantity",
    "rotation, balanced": "rotation",
    "rotation, imbalanced": "rotation+quantity",
    "IID, balanced": "iid",
    "IID, imbalanced": "iid+quantity",
}
SOLVER = ct.Solver(lr=0.05, epochs=2, batch=32)
CLUSTERING: dict[str, tuple[Any, int]] = {  # method, rounds until its clusters are there
    "autocfl": (ct.AutoCFL(SOLVER), 10),
    "autocfl, clustering = auto_cosine": (ct.AutoCFL(SOLVER, clustering="auto_cosine"), 10),
    "cflgt": (ct.CFLGT(SOLVER, pretrain=5), 6),
    "feddsmic, clusters = 4": (ct.FedDSMIC(SOLVER, clusters=4), 10),
    "fedclust": (ct.FedClust(SOLVER), 1),
    "kin": (ct.Kin(SOLVER), 1),
}
# What a method must be told to be at its best here: the true number of groups, or its own rate.
TOLD: dict[str, dict[str, Any]] = {
    "cflgt": {"pretrain": 5},
    **{m: {"clusters": 4} for m in ("feddsmic", "fedds", "ifca", "fedsem", "fedsoft", "fedpfa")},
}


def run(method: Any, kind: str, seed: int, rounds: int, model: str) -> dict[str, Any]:
    """The summary of one run."""
    clients = ct.partition("digits", kind, clients=20, seed=seed, public=1)
    return dict(ct.fit(method, clients, model, rounds=rounds, every=rounds, seed=seed).summary)


def clustering(seeds: int, model: str) -> list[str]:
    """The table of who is placed correctly."""
    lines = [f"| method | {' | '.join(SETTINGS)} |", "|---" * (len(SETTINGS) + 1) + "|"]
    for name, (method, rounds) in CLUSTERING.items():
        cells = []
        for kind in SETTINGS.values():
            found = [run(method, kind, seed, rounds, model)["clusters"] for seed in range(seeds)]
            k = [int(f["clusters"]) for f in found]
            if "ari" in found[0]:
                right = statistics.mean(f["clusters_correct"] for f in found)
                ari = statistics.mean(f["ari"] for f in found)
                cells.append(f"{right:.1f} of 20, ARI {ari:.2f}, {spread(k)}")
            else:
                cells.append(spread(k))
            print(f"{name:36} {kind:24} {cells[-1]}", file=sys.stderr, flush=True)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def spread(counts: list[int]) -> str:
    """The range of a number of clusters."""
    low, high = min(counts), max(counts)
    return f"{low} clusters" if low == high else f"{low} to {high} clusters"


def accuracy(seeds: int, rounds: int, model: str) -> list[str]:
    """The table of every method's accuracy."""
    kinds = {"labels": "label-groups", "rotation": "rotation", "IID": "iid"}
    lines = [f"| method | {' | '.join(kinds)} |", "|---" * (len(kinds) + 1) + "|"]
    for name in METHODS:
        cls: Any = find(name)
        told = {k: v for k, v in TOLD.get(name, {}).items() if k in cls.__dataclass_fields__}
        method = cls(solver=SOLVER, **told)
        if "fraction" in cls.__dataclass_fields__:
            method = cls(solver=SOLVER, fraction=1.0, **told)
        cells = []
        for kind in kinds.values():
            ends = [run(method, kind, seed, rounds, model) for seed in range(seeds)]
            mean = statistics.mean(e[e["stage"]]["accuracy_mean"] for e in ends)
            worst = statistics.mean(e[e["stage"]]["accuracy_worst"] for e in ends)
            cells.append(f"{100 * mean:.1f} ({100 * worst:.0f})")
        print(f"{name:16} {cells}", file=sys.stderr, flush=True)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Write the page."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--accuracy-seeds", type=int, default=2)
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--model", default="dnn2")
    given = options.parse_args()
    torch.set_num_threads(1)
    text = [
        "# Planted groups",
        "",
        f"Written by `make planted` with coterie {ct.__version__}, torch {torch.__version__}: the "
        f"digits of scikit-learn among 20 clients, network `{given.model}`, local training "
        f"{SOLVER.epochs} epochs of batches of {SOLVER.batch} at rate {SOLVER.lr}, the same for "
        "every method.",
        "",
        "## Who is placed correctly",
        "",
        f"Mean over {given.seeds} seeds of the clients in the right cluster (best one-to-one match)"
        ", of the adjusted Rand index, and the range of the number of clusters. The label groups "
        "are 0-2, 3-6, 4-9 and 0-9, which overlap; rotations are by 0, 90, 180 and 270 degrees. "
        "On IID data one cluster is right.",
        "",
        *clustering(given.seeds, given.model),
        "",
        "## Accuracy of every method",
        "",
        f"After {given.rounds} rounds with everybody taking part, balanced: mean over clients in "
        f"percent and, in brackets, the worst client; mean of {given.accuracy_seeds} seeds. "
        "Methods that want a number of clusters are told the true one, 4. Each client is tested "
        "as its method is meant to be used (after adaptation, where there is one).",
        "",
        *accuracy(given.accuracy_seeds, given.rounds, given.model),
        "",
    ]
    PAGE.write_text("\n".join(text))


if __name__ == "__main__":
    main()
