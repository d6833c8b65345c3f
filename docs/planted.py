"""Who finds the planted groups: writes docs/planted.md. Run it with `make planted`.

Digits among 20 clients; three tables. The first asks of the methods that look for clusters how many
clients they place correctly. The second gives the accuracy of every method. The third lets clients
change their group while training. `--tables` writes only some of them anew.
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
TOLD_FOUR = ["feddsmic", "fedds", "ifca", "fedsem", "fedsoft", "fedpfa", "fedem", "fedrc"]
# What a method must be told to be at its best here: the true number of groups, or its own rate.
TOLD: dict[str, dict[str, Any]] = {
    "cflgt": {"pretrain": 5},
    "feddrift": {"start": "own", "merge": 1.0},
    **{m: {"clusters": 4} for m in TOLD_FOUR},
}
LEFT_OUT = ("metadata",)  # on planted groups it is the oracle


def run(
    method: Any, kind: str, seed: int, rounds: int, model: str, every: int | None = None
) -> dict[str, Any]:
    """The summary of one run."""
    clients = ct.partition("digits", kind, clients=20, seed=seed, public=1)
    every = every or rounds
    return dict(ct.fit(method, clients, model, rounds=rounds, every=every, seed=seed).summary)


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


def accuracy(seeds: int, rounds: int, model: str, only: list[str], page: str) -> list[str]:
    """The table of every method's accuracy; of `only` some of them anew, the others as they are."""
    kinds = {"labels": "label-groups", "rotation": "rotation", "IID": "iid"}
    lines = [f"| method | {' | '.join(kinds)} |", "|---" * (len(kinds) + 1) + "|"]
    for name in METHODS:
        before = [line for line in page.splitlines() if line.startswith(f"| {name} | ")]
        if name in LEFT_OUT:
            continue
        if only and name not in only:
            lines += before[-1:]
            continue
        cls: Any = find(name)
        told = {k: v for k, v in TOLD.get(name, {}).items() if k in cls.__dataclass_fields__}
        method = cls(solver=SOLVER, **told)
        if "fraction" in cls.__dataclass_fields__:
            method = cls(solver=SOLVER, fraction=1.0, **told)
        cells = []
        for kind in kinds.values():
            if name == "oracle" and kind == "iid":
                cells.append("no groups")
                continue
            ends = [run(method, kind, seed, rounds, model) for seed in range(seeds)]
            mean = statistics.mean(e[e["stage"]]["accuracy_mean"] for e in ends)
            worst = statistics.mean(e[e["stage"]]["accuracy_worst"] for e in ends)
            cells.append(f"{100 * mean:.1f} ({100 * worst:.0f})")
        print(f"{name:16} {cells}", file=sys.stderr, flush=True)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def drift(seeds: int, model: str) -> list[str]:
    """The table of who notices that four of the clients have changed their group."""
    kinds = {"labels": "label-groups", "rotation": "rotation", "permutation": "permutation"}
    methods: dict[str, Any] = {
        "kin": ct.Kin(SOLVER),
        "kin, look = 0": ct.Kin(SOLVER, look=0),
        "fedclust": ct.FedClust(SOLVER, fraction=1.0),
        "ifca, clusters = 4": ct.IFCA(SOLVER, clusters=4),
        "feddrift, every = 2": ct.FedDrift(SOLVER, every=2, start="own", merge=1.0),
        "oracle": ct.Oracle(SOLVER),
    }
    lines = [f"| method | {' | '.join(kinds)} |", "|---" * (len(kinds) + 1) + "|"]
    for name, method in methods.items():
        cells = []
        for kind in kinds.values():
            ends = [run(method, f"{kind}+drift:10", s, 24, model, every=1) for s in range(seeds)]
            took = [e["clusters"]["rounds_to_recover"] for e in ends]
            right = statistics.mean(e["clusters"]["clusters_correct"] for e in ends)
            mean = 100 * statistics.mean(e[e["stage"]]["accuracy_mean"] for e in ends)
            rounds = ", ".join("never" if t is None else str(t) for t in took)
            cells.append(f"{rounds}; {right:.1f} of 20; {mean:.1f}")
        print(f"{name:20} {cells}", file=sys.stderr, flush=True)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Write the page, or some of its tables."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--tables", nargs="+", default=["clustering", "accuracy", "drift"])
    options.add_argument("--methods", nargs="+", default=[], help="only these rows of accuracy")
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--accuracy-seeds", type=int, default=2)
    options.add_argument("--drift-seeds", type=int, default=3)
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--model", default="dnn2")
    given = options.parse_args()
    torch.set_num_threads(1)
    page = PAGE.read_text()
    old = page.split("<!-- accuracy -->\n")[1].split("<!-- end -->")[0]
    make = {
        "clustering": lambda: clustering(given.seeds, given.model),
        "accuracy": lambda: accuracy(
            given.accuracy_seeds, given.rounds, given.model, given.methods, old
        ),
        "drift": lambda: drift(given.drift_seeds, given.model),
    }
    for name in given.tables:
        before, rest = page.split(f"<!-- {name} -->\n")
        after = rest.split("<!-- end -->", 1)[1]
        table = "\n".join(make[name]())
        page = f"{before}<!-- {name} -->\n\n{table}\n\n<!-- end -->{after}"
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
