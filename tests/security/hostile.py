"""Federations under attack, small enough to be trained again and again.

python -m tests.security.hostile        the table of docs/robust.md
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

import coterie as ct
from coterie.attacks.attack import Attack
from coterie.words.server import ServerOptimiser

CLIENTS, ROUNDS = 20, 10
SEEDS = range(100, 105)  # what is set here was chosen by looking at seeds 0 to 4
SOLVER = ct.Solver(lr=0.1, epochs=5, batch=32)
HONEST = Attack()
SCALING = Attack(kind="scaling")
GROUPS = "rotation:0,90"  # ten clients each
METHODS: dict[str, Callable[[ServerOptimiser], Any]] = {
    "fedavg": lambda server: ct.FedAvg(SOLVER, server=server),
    "fedclust": lambda server: ct.FedClust(SOLVER, fraction=1.0, server=server),
    "ifca": lambda server: ct.IFCA(SOLVER, clusters=2, start="kmeans", server=server),
    "kin": lambda server: ct.Kin(SOLVER, server=server),
}


class Ended(NamedTuple):
    """What came of a run: accuracies of the honest clients by name, and who was suspected."""

    honest: dict[str, float]
    group: dict[str, int]
    attackers: frozenset[str]
    suspects: frozenset[str]

    def mean(self, group: int | None = None) -> float:
        """The mean accuracy of the honest clients, of all or of one planted group, in points."""
        chosen = [a for name, a in self.honest.items() if group in (None, self.group[name])]
        return 100 * float(np.mean(chosen))

    @property
    def recall(self) -> float:
        """The share of the attackers that is suspected."""
        return len(self.suspects & self.attackers) / len(self.attackers)


@cache
def ended(
    method: str,
    merge: str = "mean",
    attack: Attack = HONEST,
    seed: int = 0,
    network: str = "mclr",
    byzantine: float = 0.2,
) -> Ended:
    """A run on digits, with suspects looked for whatever the merge is."""
    kind = "iid" if method == "fedavg" else GROUPS
    people = ct.partition("digits", kind, clients=CLIENTS, seed=seed)
    server = ServerOptimiser(merge=merge, byzantine=byzantine, flag=True)  # type: ignore[arg-type]
    result = ct.fit(
        METHODS[method](server),
        people,
        network,
        rounds=ROUNDS,
        seed=seed,
        attack=attack,
        engine="stacked",
        workers=1,
        every=ROUNDS,
        model_options={"hidden": [32]} if network == "mlp" else None,
    )
    said = result.summary
    bad = frozenset(said.get("attack", {}).get("clients", ()))
    each = result.history.clients(ROUNDS, stage="before")
    groups = [0] * CLIENTS if people.group is None else people.group.tolist()
    return Ended(
        {name: a for name, a in each.items() if name not in bad},
        dict(zip(people.names, groups, strict=True)),
        bad,
        frozenset(s["client"] for s in said["suspects"]),
    )


def fallen(
    method: str,
    merge: str,
    attack: Attack,
    seeds: Iterable[int],
    network: str = "mclr",
    group: int | None = None,
) -> float:
    """How many points the honest clients lose to what they have without attack, by the mean."""
    lost = []
    for seed in seeds:
        run, clean = (
            ended(method, merge, attack, seed, network),
            ended(method, seed=seed, network=network),
        )
        same = clean._replace(honest={name: clean.honest[name] for name in run.honest})
        lost.append(same.mean(group) - run.mean(group))
    return float(np.mean(lost))


def captured(target: int, lies: bool = False) -> Attack:
    """Two of the other group pass for one."""
    return Attack(kind="cluster-capture", share=0.1, target=target, lies=lies)


def inside(kind: str, group: int, seed: int) -> Attack:
    """Two attackers in one planted group."""
    people = ct.partition("digits", GROUPS, clients=CLIENTS, seed=seed)
    assert people.group is not None
    who = (people.group == group).nonzero().flatten().tolist()[:2]
    return Attack(kind=kind, clients=tuple(people.names[i] for i in who))  # type: ignore[arg-type]


def in_every_group(run: Ended) -> dict[int, tuple[int, int]]:
    """How many of each planted group are hostile, and of how many."""
    bad, all_ = (Counter(run.group[n] for n in names) for names in (run.attackers, run.group))
    return {g: (bad[g], n) for g, n in sorted(all_.items())}


def rows(seeds: Sequence[int]) -> Iterator[str]:
    """The table of docs/robust.md, line by line."""
    merges = ("mean", "trimmed-mean", "median", "multi-krum", "norm-clip")
    yield f"| attack | method, network | clean | {' | '.join(merges)} |"
    yield "| --- " * (3 + len(merges)) + "|"
    flips = [("sign-flip", Attack(kind="sign-flip"), m, "mclr") for m in METHODS]
    scaled = [("scaling", SCALING, "fedavg", "mlp")]
    others = [(k, Attack(kind=k), "fedavg", "mclr") for k in ("label-flip", "free-rider")]  # type: ignore[arg-type]
    taken = [("cluster-capture", captured(0), m, "mclr") for m in ("fedclust", "kin")]
    for name, attack, method, network in [*flips, *scaled, *others, *taken]:
        group = 0 if attack.kind == "cluster-capture" else None
        clean = np.mean([ended(method, seed=s, network=network).mean(group) for s in seeds])
        lost = [clean - fallen(method, m, attack, seeds, network, group) for m in merges]
        numbers = " | ".join(f"{x:.1f}" for x in (clean, *lost))
        yield f"| {name} | {method}, {network} | {numbers} |"


def caught(run: Ended) -> tuple[frozenset[str], frozenset[str]]:
    """The attackers that are suspected, and all."""
    return run.suspects & run.attackers, run.attackers


def untouched(seeds: Sequence[int]) -> Iterator[str]:
    """The second table: what a group without attackers loses, and who is suspected."""
    merges = ("mean", "trimmed-mean", "multi-krum")
    yield f"| attack on the other group | method | {' | '.join(merges)} | suspected by the mean |"
    yield "| --- " * (3 + len(merges)) + "|"
    for kind in ("label-flip", "free-rider", "cluster-capture"):
        for method in ("fedclust", "kin"):
            attacks = [
                captured(0) if kind == "cluster-capture" else inside(kind, 0, s) for s in seeds
            ]
            lost = [
                np.mean(
                    [
                        fallen(method, m, a, [s], group=1)
                        for s, a in zip(seeds, attacks, strict=True)
                    ]
                )
                for m in merges
            ]
            runs = [ended(method, "mean", a, s) for s, a in zip(seeds, attacks, strict=True)]
            right, all_ = (sum(map(len, x)) for x in zip(*map(caught, runs), strict=True))
            wrong = sum(len(r.suspects - r.attackers) for r in runs)
            numbers = " | ".join(f"{0.0 - x:+.1f}" for x in lost)
            yield f"| {kind} | {method} | {numbers} | {right} of {all_}, and {wrong} honest |"


if __name__ == "__main__":
    for line in chain(rows(SEEDS), [""], untouched(SEEDS)):  # each as soon as it is known
        print(line, flush=True)
