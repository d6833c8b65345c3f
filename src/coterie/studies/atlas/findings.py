"""What the results say: in each kind of difference who is best, who is level, who does harm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from coterie.core.units import count
from coterie.runs.statistics import LEVEL, Wilcoxon, holm, wilcoxon
from coterie.studies.atlas.grid import Place
from coterie.studies.atlas.results import Results, Row

Runs = Mapping[tuple[Place, int], Mapping[str, Row]]  # by place and seed, by method
SHOWN = 0.5  # points: less is not told as a gain


@dataclass(frozen=True)
class Standing:
    """A method in a kind of difference; accuracies are means over places and seeds."""

    method: str
    accuracy: float
    behind: float  # the best, in accuracy
    p: float | None  # of being as good as the best, adjusted; None: it is the best, or equal
    level_in: int  # places in which it is not told apart from the best there
    over: Mapping[str, float]  # accuracy above FedAvg and Local, where they were run
    below: tuple[str, ...]  # those of the two that it is clearly below
    bytes: float | None  # sent and received, FedAvg's being 1
    work: float | None  # samples trained on, FedAvg's being 1
    right: float | None  # share of runs that ended with everybody in the right cluster
    recovered: float | None  # share of runs in which everybody was right again after a change

    @property
    def level(self) -> bool:
        """Whether it is not told apart from the best."""
        return self.p is None or self.p >= LEVEL


@dataclass(frozen=True)
class Finding:
    """What is known of one kind of difference."""

    kind: str
    what: str
    runs: int  # places x seeds that everybody here has
    places: tuple[Place, ...]
    standings: tuple[Standing, ...]  # the best first; without who is told the groups
    ceiling: Standing | None  # who is told the groups
    sparse: Mapping[str, int]  # methods with too few runs to be compared, and how many they have
    over: str  # what the tests are over: runs, or clients where there are too few

    @property
    def best(self) -> Standing:
        """Who has the highest mean accuracy."""
        return self.standings[0]

    @property
    def level(self) -> list[str]:
        """Who is not told apart from the best, the best first."""
        return [s.method for s in self.standings if s.level]

    @property
    def advice(self) -> str:
        """What to take, in a sentence or two, from the numbers alone."""
        return " ".join(sentences(self))


def findings(results: Results) -> list[Finding]:
    """A finding for each kind of difference that has results, in the order of the grid."""
    found = (of_kind(results, kind) for kind in results.atlas.kinds)
    return [finding for finding in found if finding is not None]


def of_kind(results: Results, kind: str) -> Finding | None:
    """What the results say of a kind; None if fewer than two methods were run."""
    runs, sparse = common(results.at(kind))
    methods = list(next(iter(runs.values()), {}))
    told = [m for m in methods if results.atlas.contestant(m).planted]
    free = [m for m in methods if m not in told]
    if len(free) < 2:
        return None
    mean = {m: fmean(accuracies(runs, m)) for m in methods}
    order = sorted(free, key=lambda m: -mean[m])
    places = tuple(dict.fromkeys(place for place, _ in runs))
    tests = {m: versus(runs, m, order[0]) for m in methods}
    adjusted = dict(zip(tests, holm([t.p for t in tests.values()]), strict=True))
    level = levels(runs, free)
    below = {b: harmed(runs, methods, b) for b in ("fedavg", "local") if b in methods}

    def standing(m: str) -> Standing:
        rows = [run[m] for run in runs.values()]
        return Standing(
            m,
            mean[m],
            mean[order[0]] - mean[m],
            adjusted[m] if mean[m] < mean[order[0]] else None,
            sum(m in some for some in level.values()),
            {b: mean[m] - mean[b] for b in below},
            tuple(b for b, who in below.items() if m in who),
            ratio(runs, m, lambda row: (row.up or 0) + (row.down or 0)),
            ratio(runs, m, lambda row: row.samples or 0),
            share([None if r.right is None else r.right >= len(r.scores) for r in rows]),
            share([r.recovered is not None for r in rows])
            if results.atlas.kinds[kind].drift and any(r.right is not None for r in rows)
            else None,
        )

    return Finding(
        kind,
        results.atlas.kinds[kind].what,
        len(runs),
        places,
        tuple(map(standing, order)),
        standing(told[0]) if told else None,
        sparse,
        tests[order[-1]].over,
    )


def common(runs: Runs) -> tuple[Runs, dict[str, int]]:
    """The runs that all methods have, without methods that have fewer than half of what is usual.

    Also who these are, and how many runs they have. A method with more than the others, perhaps one
    that was just measured anew, makes nobody else sparse.
    """
    counts: dict[str, int] = {}
    for run in runs.values():
        for method in run:
            counts[method] = counts.get(method, 0) + 1
    usual = median(counts.values()) if counts else 0
    sparse = {m: n for m, n in counts.items() if 2 * n < usual}
    methods = [m for m in counts if m not in sparse]
    whole = {key: run for key, run in runs.items() if all(m in run for m in methods)}
    return {key: {m: run[m] for m in methods} for key, run in whole.items()}, sparse


def accuracies(runs: Runs, method: str) -> list[float]:
    """The accuracy of a method in each run."""
    return [run[method].accuracy or 0.0 for run in runs.values()]


def enough(runs: Runs) -> bool:
    """Whether a test over runs could find anything: the least p that there is, for all its tests.

    With all of n runs on one side p is 2 / 2^n, and each of the others is held against one method.
    """
    others = len(next(iter(runs.values()), {})) - 1
    return others * 2.0 ** (1 - len(runs)) < LEVEL


def versus(runs: Runs, a: str, b: str) -> Wilcoxon:
    """Two methods against each other: over runs, or over all their clients where runs are few."""
    if enough(runs):
        return wilcoxon(accuracies(runs, a), accuracies(runs, b), a, b, "runs")
    x, y = scores(runs, a, b)
    return wilcoxon(x, y, a, b)


def scores(runs: Runs, a: str, b: str) -> tuple[list[float], list[float]]:
    """The accuracies of all clients of some runs with two methods."""
    both = [(run[a].scores, run[b].scores) for run in runs.values()]
    same = [(x, y) for x, y in both if len(x) == len(y)]
    return [v for x, _ in same for v in x], [v for _, y in same for v in y]


def levels(runs: Runs, methods: Sequence[str]) -> dict[Place, set[str]]:
    """In each place, who is not told apart from the best there, over the clients of all seeds."""
    found = {}
    for place in dict.fromkeys(place for place, _ in runs):
        here = {key: run for key, run in runs.items() if key[0] == place}
        best = max(methods, key=lambda m: fmean(accuracies(here, m)))
        others = [m for m in methods if m != best]
        tests = [wilcoxon(*scores(here, m, best), m, best) for m in others]
        p = holm([test.p for test in tests])
        found[place] = {best} | {
            m
            for m, test, value in zip(others, tests, p, strict=True)
            if value is None or value >= LEVEL or test.difference >= 0
        }
    return found


def harmed(runs: Runs, methods: Sequence[str], baseline: str) -> set[str]:
    """Who is clearly below a baseline."""
    others = [m for m in methods if m != baseline]
    tests = [versus(runs, m, baseline) for m in others]
    p = holm([test.p for test in tests])
    below = zip(others, tests, p, strict=True)
    return {m for m, test, value in below if value is not None and value < LEVEL and worse(test)}


def worse(test: Wilcoxon) -> bool:
    """Whether the first of the two is worse, in most pairs and in the mean."""
    return test.difference < 0 and test.losses > test.wins


def ratio(runs: Runs, method: str, cost: Callable[[Row], float]) -> float | None:
    """What a method costs, FedAvg's cost being 1: the mean over runs."""
    pairs = [(cost(run[method]), cost(run["fedavg"])) for run in runs.values() if "fedavg" in run]
    known = [mine / usual for mine, usual in pairs if usual]
    return fmean(known) if known else None


def share(known: Sequence[bool | None]) -> float | None:
    """The share of yes among the answers there are."""
    said = [answer for answer in known if answer is not None]
    return sum(said) / len(said) if said else None


def sentences(found: Finding) -> Iterator[str]:
    """Advice, each sentence from the numbers."""
    if found.over != "runs":
        yield f"From {count(found.runs, 'run')} only, tested over their clients."
    best, usual = found.best, next((s for s in found.standings if s.method == "fedavg"), None)
    level = [s for s in found.standings if s.level]
    if usual and usual.level:
        gain = 100 * usual.behind
        if gain < SHOWN:
            yield "FedAvg is enough, nothing is clearly better."
        else:  # which may be for want of runs
            more = f"the best, {best.method}, has {gain:.1f} points more"
            yield f"Nothing is clearly better than FedAvg; {more}."
    else:
        above = f", {100 * usual.behind:.1f} points above FedAvg" if usual else ""
        yield f"Take {best.method}: {100 * best.accuracy:.1f} %{above}."
        others = [s.method for s in level if s.method != best.method]
        if others:
            yield f"Level with it: {', '.join(others)}."
        if cheap := cheapest(level, best):
            yield cheap
    for name, title in (("fedavg", "FedAvg"), ("local", "training alone")):
        below = [s.method for s in found.standings if name in s.below]
        if below:
            yield f"Clearly below {title}: {', '.join(below)}."
    if found.ceiling and found.ceiling.accuracy > best.accuracy + SHOWN / 100:
        gap = 100 * (found.ceiling.accuracy - best.accuracy)
        yield f"Who is told the groups has {gap:.1f} points more."


def cheapest(level: Sequence[Standing], best: Standing) -> str:
    """Which of those that are level sends least, if it is not the best and it matters."""
    known = [s for s in level if s.bytes]
    least = min(known, key=lambda s: s.bytes or 0.0, default=best)
    if least is best or not best.bytes or not least.bytes or least.bytes > 0.8 * best.bytes:
        return ""
    return f"Of these {least.method} sends least, {least.bytes:.2g} times FedAvg's bytes."
