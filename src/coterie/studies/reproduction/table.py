"""A table of a paper: its settings, its methods, what it measures, and what it claims.

Nothing here needs torch, so that a list of tables costs nothing.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Literal, NamedTuple

Verdict = Literal["holds", "does not hold", "not tested"]


class Figure(NamedTuple):
    """One number that a paper prints."""

    method: str
    dataset: str
    setting: str
    metric: str
    value: float | None  # None: a dash, as for a target that was not reached
    std: float | None  # None: the paper prints no spread


@dataclass(frozen=True)
class Setting:
    """One column of a table: data and their division, as settings above the table's file.

    Figures belong to it whose setting is its name, or its name and more behind a semicolon.
    """

    dataset: str  # as the paper calls it
    name: str
    source: str  # what the data are called here
    given: Mapping[str, Any] = field(default_factory=dict)  # dotted key -> value
    differs: str = ""  # from the paper, in words: a stand-in for its data, a cut

    def has(self, figure: Figure | Key) -> bool:
        """Whether a figure of the paper is measured in this setting."""
        same = figure.dataset == self.dataset
        return same and f"{figure.setting};".startswith(f"{self.name};")

    @property
    def folder(self) -> str:
        """The name of its folder.

        >>> Setting("MNIST", "alpha=0.05", "mnist").folder
        'mnist_alpha=0.05'
        """
        words = f"{self.source} {self.name}".replace("%", "pct")
        return "".join(c if c.isalnum() or c in "=.+-" else "_" for c in words)


class Key(NamedTuple):
    """Which number: a method by the paper's name (ours by its label), a setting, a metric."""

    method: str
    dataset: str
    setting: str
    metric: str


Numbers = Mapping[Key, float]  # what was measured
Check = Callable[[Numbers], tuple[Verdict, str]]  # -> the verdict, and by which numbers


@dataclass(frozen=True)
class Claim:
    """What a paper says of its table, as a check on numbers that may be ours or its own."""

    text: str
    check: Check


@dataclass(frozen=True)
class Table:
    """One table of a paper."""

    name: str  # feddsmic-2
    paper: str
    title: str
    experiment: str = ""  # the file whose runs it is read from; "": it cannot be run
    settings: tuple[Setting, ...] = ()
    methods: Mapping[str, str] = field(default_factory=dict)  # the paper's name -> our label
    beside: tuple[str, ...] = ()  # labels of ours that the paper does not have
    measures: Mapping[str, str] = field(default_factory=dict)  # the paper's metric -> a measure
    also: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # metric -> (name, measure)
    claims: tuple[Claim, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)  # data set, or "": why it is not run
    notes: str = ""  # what a reader should know of the paper's numbers

    @property
    def figures(self) -> list[Figure]:
        """What the paper prints."""
        text = (DATA / "papers" / f"{self.name}.csv").read_text(encoding="utf-8")
        rows = csv.DictReader(io.StringIO(text))
        return [
            Figure(
                r["method"],
                r["dataset"],
                r["setting"],
                r["metric"],
                _number(r["value"]),
                _number(r["std"]),
            )
            for r in rows
        ]

    @property
    def file(self) -> Traversable:
        """The experiment file."""
        return DATA / f"{self.experiment}.toml"

    @property
    def named(self) -> dict[str, str]:
        """The measure behind every metric, also behind those that stand beside the paper's."""
        return {**self.measures, **dict(self.also.values())}

    @property
    def labels(self) -> tuple[str, ...]:
        """The methods as they are called here: those of the paper, and ours beside them."""
        return (*self.methods.values(), *self.beside)


DATA = files("coterie.experiments")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return float(len(text.split())) or None  # of a list of clients, how many they are
