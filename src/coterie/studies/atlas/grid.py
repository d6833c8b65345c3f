"""The grid of the atlas, as its file has it: kinds of difference x data x sizes x methods x seeds.

Nothing here needs torch.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from importlib.resources import files
from itertools import product
from operator import getitem
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from coterie.config import toml
from coterie.config import tuning as settings
from coterie.config.grid import split
from coterie.config.tuning import AWAY, Candidate
from coterie.core.bounds import dataclass as checked
from coterie.core.errors import ConfigError
from coterie.core.suggest import similar

FILE = files("coterie.experiments") / "atlas.toml"
TEST_SHARE = 0.2  # of a client's samples, where the data have no test set of their own
LR = "lr=0.02,0.05,0.1,0.15"  # what is tried of a method that is not in the file

Role = Literal["development", "evaluation"]
Settings = list[tuple[str, Any]]  # dotted key, value


@checked(frozen=True)
class Kind:
    """A kind of difference between clients."""

    partition: str  # as an experiment file has it
    what: str  # differs, in words
    planted: bool = False  # whether clients come in groups, which an oracle can be told
    drift: bool = False  # whether it changes while training goes on
    needs: float = 1.0  # samples over clients x size: some divisions leave samples out
    data: tuple[str, ...] = ()  # the only sets that have it; (): all
    own: int = 0  # samples of an owner, where the clients are the data's own


@checked(frozen=True)
class Source:
    """A data set."""

    source: str  # as an experiment file has it
    model: str
    sizes: tuple[int, ...]  # samples of a client: those it trains on, and chooses by
    samples: int = 0  # in all, if it has no test set of its own
    kinds: tuple[str, ...] = ()  # that it is divided in; (): all


@checked(frozen=True)
class Contestant:
    """A method, and what is tried of it."""

    tune: str = LR
    revision: int = 0  # raised when the method has changed
    planted: bool = False  # whether it takes part only where there are planted groups

    def candidates(self, label: str) -> list[Candidate]:
        """Every combination of the values, and nothing else: everybody has as many."""
        name, _ = split(label)
        axes = settings.axes([self.tune])
        settings.expect_used(axes, [label])
        homes = {settings.place(key, name): values for key, values in axes.items()}
        return [
            Candidate(label, dict(zip(cast(list[str], list(homes)), combination, strict=True)))
            for combination in product(*homes.values())
        ]


class Place(NamedTuple):
    """A kind of difference, a data set, and a size of clients: what methods are compared in."""

    kind: str
    data: str
    size: int

    def __str__(self) -> str:
        return f"{self.kind} · {self.data} · {self.size}"


class Cell(NamedTuple):
    """One run: a method with a seed in a place."""

    place: Place
    method: str  # its label, as a comparison takes it
    seed: int


@dataclass(frozen=True)
class Atlas:
    """All of the grid."""

    version: int
    clients: int
    candidates: int  # of each method
    settings: Mapping[str, Any]
    roles: Mapping[str, Mapping[str, Any]]
    data: Mapping[str, Source]
    kinds: Mapping[str, Kind]
    core: Sequence[Mapping[str, Any]]
    methods: Mapping[str, Contestant] = field(default_factory=dict)

    @classmethod
    def load(cls, file: Path | None = None) -> Atlas:
        """The grid of the package, or of a file that is like it."""
        found = tomllib.loads((file or FILE).read_text(encoding="utf-8"))
        return cls(
            **found
            | {
                "data": {name: Source(**one) for name, one in found["data"].items()},
                "kinds": {name: Kind(**one) for name, one in found["kinds"].items()},
                "methods": {name: Contestant(**one) for name, one in found["methods"].items()},
            }
        )

    def role(self, place: Place) -> Role:
        """Whether methods may be designed on a place, or are judged in it."""
        held = self.roles["evaluation"]
        apart = place.data in held["data"] or place.kind in held["kinds"]
        return "evaluation" if apart else "development"

    def seeds(self, place: Place) -> tuple[int, ...]:
        """The seeds that are reported."""
        return tuple(self.roles[self.role(place)]["seeds"])

    def choosing(self, place: Place) -> int:
        """The seed whose validation data choose; it is not reported."""
        return min(self.seeds(place)) + AWAY

    def places(self, which: str = "core") -> list[Place]:
        """Where methods are compared, in the order of the data: in the core grid, or everywhere."""
        found = [p for p in self.everywhere if which == "full" or p in self.in_core]
        order = list(self.data)
        return sorted(found, key=lambda p: (order.index(p.data), p.size))

    @cached_property
    def everywhere(self) -> list[Place]:
        """Every place that makes sense."""
        return [
            Place(kind, data, size)
            for data, source in self.data.items()
            for size in source.sizes
            for kind, about in self.kinds.items()
            if (not about.data or data in about.data) and (not about.own or size < about.own)
            if not source.kinds or kind in source.kinds
        ]

    @cached_property
    def in_core(self) -> frozenset[Place]:
        """The places of the core grid."""
        return frozenset(
            p
            for p in self.everywhere
            for part in self.core
            if p.data == part["data"]
            and p.size in part["sizes"]
            and p.kind in part.get("kinds", self.kinds)
        )

    def contestants(self, place: Place, methods: Sequence[str]) -> list[str]:
        """Those of some methods that can take part in a place."""
        planted = self.kinds[place.kind].planted
        return [m for m in methods if planted or not self.contestant(m).planted]

    def contestant(self, label: str) -> Contestant:
        """A method of the file, or one that was brought along."""
        return self.methods.get(label, Contestant())

    def cells(self, places: Sequence[Place], methods: Sequence[str], seeds: int) -> list[Cell]:
        """What is run, in order: the first seed of all places before the second of any."""
        return [
            Cell(place, method, self.seeds(place)[i])
            for i in range(seeds)
            for place in places
            for method in self.contestants(place, methods)
            if i < len(self.seeds(place))
        ]

    def experiment(self, place: Place) -> Settings:
        """The settings of a place, for whichever method."""
        source, kind = self.data[place.data], self.kinds[place.kind]
        leaves = toml.leaves(self.settings)
        common = [(".".join(p), reduce(getitem, p, self.settings)) for p in leaves]
        wanted = round(kind.needs * self.clients * place.size)
        test: Settings
        if kind.own:
            test = [("data.test_share", round(1 - place.size / kind.own, 3))]
        elif source.samples:
            left = round(1 - wanted / source.samples, 3)
            test = [("data.test_share", max(TEST_SHARE, left))]
        else:
            test = [("data.test", "proportions"), ("data.limit", wanted)]
        return [
            *common,
            ("data.source", source.source),
            ("model.name", source.model),
            ("partition.kind", kind.partition),
            ("partition.clients", self.clients),
            *test,
            *([("evaluate.every", 1)] if kind.drift else []),  # to see who is right again, and when
        ]


def chosen(what: str, given: Sequence[str], known: Sequence[str]) -> list[str]:
    """What was asked for, in the order of what there is; all if nothing was."""
    for name in given:
        if name not in known:
            fix = similar(name, known) or f"one of {', '.join(known)}"
            raise ConfigError(f"the atlas has no {what} {name!r}", code="C080", fix=fix)
    return [name for name in known if not given or name in given]
