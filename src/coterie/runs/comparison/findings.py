"""What a comparison found: all pairs of methods, and all methods together, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from coterie.runs.statistics import Friedman, Wilcoxon, friedman, holm, shown, wilcoxon

Scores = Mapping[str, Mapping[int, Mapping[str, float]]]  # method -> seed -> client -> accuracy


@dataclass(frozen=True)
class Pair:
    """Two methods against each other: tested over the clients of all seeds, and over the seeds."""

    clients: Wilcoxon
    seeds: Wilcoxon
    clients_holm: float | None  # p among all the pairs of the comparison
    seeds_holm: float | None

    @property
    def first(self) -> str:
        """The method that is asked about: wins are its wins."""
        return self.clients.first

    @property
    def second(self) -> str:
        """The method it is compared with."""
        return self.clients.second

    @property
    def sentence(self) -> str:
        """Over clients, then over seeds, with the p values that hold among all pairs."""
        over_clients = adjusted(self.clients, self.clients_holm)
        if self.clients.p is None:
            return over_clients
        test = self.seeds if self.clients.wins >= self.clients.losses else self.seeds.turned
        if not test.enough:
            return f"{over_clients}; in {test.wins} of {test.n} seeds, too few for a test"
        return f"{over_clients}; {adjusted(self.seeds, self.seeds_holm)}"


def adjusted(test: Wilcoxon, p: float | None) -> str:
    """The sentence of a test, with its p among all pairs where that reads otherwise."""
    text = test.sentence
    if p is None or test.p is None or not test.enough or shown(p) == shown(test.p):
        return text
    return f"{text[:-1]}; Holm {shown(p)})"


@dataclass(frozen=True)
class Findings:
    """Everything that was tested, and what it can and cannot show."""

    pairs: tuple[Pair, ...]
    friedman_clients: Friedman | None  # with three methods or more
    friedman_seeds: Friedman | None
    clients: int  # pairs of a client and a seed that every method has
    seeds: int  # that every method has
    left_out: int  # of them, those for which some method has no accuracy

    @property
    def caveat(self) -> str:
        """What the tests do not show."""
        few = (
            f"{self.seeds} are too few to tell two methods apart, 6 are not"
            if self.seeds < 6
            else f"{self.seeds} in all"
        )
        left = f" {self.left_out} clients without an accuracy for some method are left out."
        return (
            "Over clients (each counted in every seed) asks whether the clients of these runs do "
            "better. Clients of one run share its models and are not independent: that p is no "
            "evidence about other runs. Over seeds asks whether it comes out so again: each seed "
            f"is one pair, {few}.{left if self.left_out else ''}"
        )


def findings(scores: Scores) -> Findings:
    """All pairs of methods, and with three or more all together, on what every method has."""
    methods = list(scores)
    seeds = [s for s in next(iter(scores.values()), {}) if all(s in scores[m] for m in methods)]
    every = [(s, c) for s in seeds for c in sorted({c for m in methods for c in scores[m][s]})]
    pairs = [(s, c) for s, c in every if all(c in scores[m][s] for m in methods)]
    by_client = {m: [scores[m][s][c] for s, c in pairs] for m in methods}
    by_seed = {m: [_mean(scores[m][s]) for s in seeds] for m in methods}
    found = [
        tuple(
            wilcoxon(values[b], values[a], b, a, over)
            for values, over in ((by_client, "clients"), (by_seed, "seeds"))
        )
        for a, b in combinations(methods, 2)
    ]
    adjusted = [holm([two[i].p for two in found]) for i in (0, 1)]
    many = len(methods) > 2
    return Findings(
        pairs=tuple(Pair(*two, *p) for two, *p in zip(found, *adjusted, strict=True)),
        friedman_clients=_all(by_client, "clients") if many and len(pairs) > 1 else None,
        friedman_seeds=_all(by_seed, "seeds") if many and len(seeds) > 1 else None,
        clients=len(pairs),
        seeds=len(seeds),
        left_out=len(every) - len(pairs),
    )


def _all(values: Mapping[str, Sequence[float]], over: str) -> Friedman:
    return friedman(np.array(list(values.values())).T.tolist(), list(values), over)


def _mean(values: Mapping[str, float]) -> float:
    return float(np.mean(list(values.values())))
