"""What is tried when settings are chosen: a grid over [train] and the methods' own options.

A candidate is a method with the settings it is tried with, written as the methods of a comparison
are: `fedavg:train.lr=0.1`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from coterie.config import tables, toml
from coterie.config.aliases import ALIASES
from coterie.config.fields import Required
from coterie.config.grid import refused, split
from coterie.config.source import assignment, word
from coterie.config.tables import table_name
from coterie.core.suggest import similar
from coterie.core.units import count
from coterie.methods import METHODS

FIXED = ("rounds", "stop", "defaults")  # of [train]: how long, and what is chosen by
OWN_RECIPE = "fedavg"  # a method without a recipe of its own has the solver that this one has
AWAY = 1000  # seeds between those that are reported and those that choose

Axes = Mapping[str, tuple[Any, ...]]  # key as it was written -> values


@dataclass(frozen=True)
class Candidate:
    """A method with settings that are tried."""

    method: str  # its label in the comparison
    settings: Mapping[str, Any]  # by key, with its table
    usual: frozenset[str] = frozenset()  # the keys whose value is the method's default

    @property
    def label(self) -> str:
        """The method as a comparison writes it."""
        own = table_name(split(self.method)[0])
        parts = (f"{k.removeprefix(f'{own}.')}={written(v)}" for k, v in self.settings.items())
        return ":".join((self.method, *parts))

    @property
    def text(self) -> str:
        """The settings in words.

        >>> Candidate("fedavg", {"train.lr": 0.1}, frozenset({"train.lr"})).text
        'lr = 0.1 (default)'
        """
        return ", ".join(
            f"{key.split('.', 1)[1]} = {written(v)}" + " (default)" * (key in self.usual)
            for key, v in self.settings.items()
        )


def written(value: Any) -> str:
    """A value as a command line has it."""
    return value if isinstance(value, str) else toml.inline(value)


def axes(texts: Iterable[str]) -> Axes:
    """What `key=a,b,c` ask for, several of them in a text or in several.

    >>> axes(["lr=0.01,0.1 kin.gain=0.1,0.2"])
    {'lr': (0.01, 0.1), 'kin.gain': (0.1, 0.2)}
    """
    found: dict[str, tuple[Any, ...]] = {}
    for text in (part for whole in texts for part in whole.split()):
        key, _ = assignment(text)
        values = re.split(r",(?![^\[]*\])", text.partition("=")[2])
        found[key] = tuple(dict.fromkeys(word(value) for value in values if value))
        if not found[key]:
            raise refused(f"{text!r} names no value to try", "write key=a,b,c: lr=0.01,0.03,0.1")
    if not found:
        raise refused("nothing is named to be tried", "write key=a,b,c: lr=0.01,0.03,0.1")
    return found


def several(setting: str) -> bool:
    """Whether a setting of the command line names more than one value.

    >>> several("lr=0.01,0.1"), several("train.rounds=5"), several("data.size=[8,8]")
    (True, False, False)
    """
    return len(re.split(r",(?![^\[]*\])", setting.partition("=")[2])) > 1


def candidates(method: str, asked: Axes) -> list[Candidate]:
    """All that is tried of one method: every combination of the values of its own keys.

    Its default is one of the values of each key: what its paper says, or ours where that is silent.
    """
    name, given = split(method)
    fixed, mine = {key for key, _ in given}, {}
    usual = defaults(name)
    for key, values in asked.items():
        home = place(key, name)
        if home is None or home in fixed:
            continue
        extra = (usual[home],) if home in usual and usual[home] not in values else ()
        mine[home] = (*values, *extra)
    return [
        Candidate(method, settings, frozenset(k for k, v in settings.items() if usual.get(k) == v))
        for combination in product(*mine.values())
        for settings in [dict(zip(mine, combination, strict=True))]
    ]


def place(key: str, method: str) -> str | None:
    """A key with its table; None where the method has no such key."""
    own, train = tables.hyperparameters(method), tables.keys_of("train")
    home, _, rest = key.rpartition(".")
    if home == "train" or (not home and rest not in own):
        table, rest = ALIASES.get(rest, ("train", rest))
        if table == "train" and rest in train and rest not in FIXED:
            return f"train.{rest}"
        return None
    return (
        f"{table_name(method)}.{rest}" if home in ("", table_name(method)) and rest in own else None
    )


def defaults(method: str) -> dict[str, Any]:
    """The defaults of a method of a paper, by key with its table; others have none to keep to."""
    if method not in METHODS or METHODS[method].paper.startswith(("ours", "the baseline")):
        return {}
    own = tables.hyperparameters(method)
    found = {
        f"{table_name(method)}.{key}": f.default
        for key, f in own.items()
        if f.default is not None and f.default is not Required
    }
    plain, recipe = tables.paper(OWN_RECIPE), tables.paper(method)
    if any(recipe.get(key) != value for key, value in plain.items() if key in recipe):
        found |= {f"train.{key}": value for key, value in recipe.items()}
    return found


def expect_used(asked: Axes, methods: Sequence[str]) -> None:
    """Refuse a key that no method has, and one that would make another experiment."""
    for key in asked:
        if any(place(key, split(m)[0]) for m in methods):
            continue
        rest = key.rpartition(".")[2]
        known = [k for k in tables.keys_of("train") if k not in FIXED]
        known += [k for m in methods for k in tables.hyperparameters(split(m)[0])]
        near = similar(rest, known, "key")
        if rest in FIXED:
            near = "it is what all candidates have in common: set it as train." + rest
        raise refused(
            f"{key} cannot be tried", near or "keys of [train] and a method's own options can"
        )


def seeds_to_choose_by(reported: Sequence[int], many: int) -> tuple[int, ...]:
    """So many seeds that are not among those that are reported.

    >>> seeds_to_choose_by((0, 1, 2), 2)
    (1000, 1001)
    """
    if many < 1:
        raise refused(f"{count(many, 'seed')} to choose by", "give one or more: --tune-seeds 2")
    first = min(reported) + AWAY
    found: list[int] = []
    while len(found) < many:
        if first not in reported:
            found.append(first)
        first += 1
    return tuple(found)


def rungs(candidates: int, rounds: int, budget: int | None = None) -> list[tuple[int, int]]:
    """How many candidates are trained for how many rounds, one after another: one grid, or as many
    halvings as bring the work down to that of `budget` whole runs.

    >>> rungs(8, 20), rungs(8, 20, 6), rungs(8, 20, 4)
    ([(8, 20)], [(8, 5), (4, 10), (2, 20)], [(8, 2), (4, 5), (2, 10)])
    """
    plans = [[(candidates, rounds)]]
    while 2 ** len(plans) <= rounds and 2 ** (len(plans) - 1) < candidates:
        halvings = len(plans)
        many = [-(-candidates // 2**i) for i in range(halvings + 1)]
        lengths = [rounds // 2 ** (halvings - i) for i in range(halvings + 1)]
        both = zip(many, lengths, strict=True)
        plans.append([(n, r) for n, r in both if n > 1])  # one alone is not to be chosen from
    work = [-(-sum(n * r for n, r in plan) // rounds) for plan in plans]
    if budget is not None and min(work) > budget:
        raise refused(
            f"a budget of {count(budget, 'run')} is too small for {candidates} candidates",
            f"give --budget {min(work)} or more, more rounds, or fewer values",
        )
    return next(p for p, runs in zip(plans, work, strict=True) if runs <= (budget or runs))
