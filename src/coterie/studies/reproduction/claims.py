"""The kinds of things that papers claim of a table, as checks on its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from statistics import fmean

from coterie.core.units import count
from coterie.studies.reproduction.table import Check, Key, Numbers, Verdict

Column = tuple[str, str, str]  # data set, setting, metric


def columns(numbers: Numbers, metric: str, where: str = "") -> Iterator[tuple[Column, Numbers]]:
    """The numbers of each setting that was measured by this metric; `where` is in its name."""
    found = dict.fromkeys((k.dataset, k.setting) for k in numbers if k.metric == metric)
    for dataset, setting in found:
        if where in f"{dataset} {setting}":
            same = (dataset, setting, metric)
            yield same, {k: v for k, v in numbers.items() if k[1:] == same}


def best(
    method: str, among: Sequence[str], metric: str, *, least: bool = False, where: str = ""
) -> Check:
    """The method is the best of these in every setting, or with `least` has the smallest number."""

    def ahead(own: float, others: Iterable[float]) -> bool:
        return all(own <= v if least else own >= v for v in others)

    return everywhere(method, among, metric, ahead, where, rival=min if least else max)


def above(
    method: str, others: Sequence[str], metric: str, by: float = 0.0, where: str = ""
) -> Check:
    """The method is at least so many points above each of the others in every setting."""

    def ahead(own: float, rest: Iterable[float]) -> bool:
        return all(own >= v + by for v in rest)

    return everywhere(method, others, metric, ahead, where)


def near(method: str, other: str, metric: str, within: float) -> Check:
    """Two methods are at most so many points apart in every setting."""

    def close(own: float, rest: Iterable[float]) -> bool:
        return all(abs(own - v) <= within for v in rest)

    return everywhere(method, [other], metric, close)


def everywhere(
    method: str,
    others: Sequence[str],
    metric: str,
    ahead: Callable[[float, list[float]], bool],
    where: str = "",
    rival: Callable[[Iterable[float]], float] = max,
) -> Check:
    """A comparison of a method with all others that must come out so in every setting.

    What is told of the others is the `rival` alone, the best of them. One that is ahead refutes the
    claim, whoever else is still to be measured; that nobody is can be said when all are.
    """
    wanted = [m for m in others if m != method]

    def check(numbers: Numbers) -> tuple[Verdict, str]:
        said, right = [], []
        for (dataset, setting, _), mine in columns(numbers, metric, where):
            values = {k.method: v for k, v in mine.items()}
            rest = {m: values[m] for m in wanted if m in values}
            if method not in values or not rest:
                continue
            so = ahead(values[method], list(rest.values()))
            if so and len(rest) < len(wanted):
                continue
            right.append(so)
            top = next(m for m in rest if rest[m] == rival(rest.values()))
            ours, theirs = number(values[method]), number(rest[top])
            said.append(f"{dataset} {setting}: {ours} against {top} {theirs}")
        return verdict(right), in_settings(right, said)

    return check


def in_settings(right: Sequence[bool], said: Sequence[str]) -> str:
    """In how many of the settings that were measured it is so, and by which numbers.

    >>> in_settings([True, False], ["a: 2 against 1", "b: 1 against 2"])
    'in 1 of 2 settings measured: a: 2 against 1; b: 1 against 2'
    """
    head = f"in {sum(right)} of {count(len(right), 'setting')} measured: "
    return head + "; ".join(said) if right else ""


def number(value: float) -> str:
    """A number in words; a target that was not reached is infinitely far.

    >>> number(94.123), number(inf)
    ('94.12', 'never')
    """
    return "never" if value == inf else f"{value:.2f}"


def at_least(method: str, metric: str, value: float, where: str = "") -> Check:
    """The number is at least so large in every setting."""
    return bounded(method, metric, lambda v: v >= value, where)


def at_most(method: str, metric: str, value: float, where: str = "") -> Check:
    """The number is at most so large in every setting."""
    return bounded(method, metric, lambda v: v <= value, where)


def bounded(method: str, metric: str, right: Callable[[float], bool], where: str = "") -> Check:
    """The number of a method is within its bound in every setting."""

    def check(numbers: Numbers) -> tuple[Verdict, str]:
        found = {
            (dataset, setting): mine[Key(method, dataset, setting, metric)]
            for (dataset, setting, _), mine in columns(numbers, metric, where)
            if Key(method, dataset, setting, metric) in mine
        }
        told = [f"{d} {s}: {v:g}" for (d, s), v in found.items()]
        good = [right(v) for v in found.values()]
        return verdict(good), in_settings(good, told)

    return check


def every(*checks: Check) -> Check:
    """Several checks as one: it holds if all do, does not if one does not, and else is untested."""

    def check(numbers: Numbers) -> tuple[Verdict, str]:
        found = [one(numbers) for one in checks]
        told = "; ".join(dict.fromkeys(by for _, by in found if by))
        verdicts = {said for said, _ in found}
        if "does not hold" in verdicts:
            return "does not hold", told
        return ("not tested", "") if "not tested" in verdicts else ("holds", told)

    return check


def gains(method: str, other: str, metric: str, by: float, where: str = "") -> Check:
    """The mean over settings of how much a method is above another is at least so many points."""

    def check(numbers: Numbers) -> tuple[Verdict, str]:
        pairs = []
        for (dataset, setting, _), mine in columns(numbers, metric, where):
            two = [mine.get(Key(m, dataset, setting, metric)) for m in (method, other)]
            if two[0] is not None and two[1] is not None:
                pairs.append(two[0] - two[1])
        told = f"mean over {count(len(pairs), 'setting')}: {fmean(pairs):+.2f}" if pairs else ""
        return verdict([fmean(pairs) >= by] if pairs else []), told

    return check


def verdict(right: Sequence[bool]) -> Verdict:
    """One word for all settings.

    >>> verdict([True, True]), verdict([True, False]), verdict([])
    ('holds', 'does not hold', 'not tested')
    """
    if not right:
        return "not tested"
    return "holds" if all(right) else "does not hold"
