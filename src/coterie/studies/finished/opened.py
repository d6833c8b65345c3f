"""The clients of a run as its folder knows them: who they are, but not yet their data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from coterie.core.client import Client
from coterie.core.layout import Layout
from coterie.data.course import Course
from coterie.data.population import Population
from coterie.models.spec import ModelSpec
from coterie.runs.model import RunModel
from coterie.runs.reading import Clusters


class OpenedPopulation(Population):
    """The clients of an opened run. Their data are read when they are first asked for.

    Names, sizes, classes and planted groups are in the run's folder; `bring` makes the rest.
    """

    def __init__(
        self,
        known: RunModel,
        held: Clusters,
        key: str,
        bring: Callable[[], Population],
        *,
        at: int = 0,
    ) -> None:
        self._known, self._held_by, self._key = known, held, key
        self._bring, self._at = bring, at  # the round that this is a view of; 0: the beginning
        if not known.public:
            self.public = None  # no need to read anything for it

    def __getattr__(self, name: str) -> Any:
        """All that only the data tell: they are read for it."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.real, name)

    @cached_property
    def real(self) -> Population:
        """The clients with their data."""
        return self._bring()

    @property
    def recipe(self) -> Mapping[str, Any] | None:  # type: ignore[override]
        """How a population made in Python is made again."""
        return (self._known.python or {}).get("population")

    def __len__(self) -> int:
        return len(self._known.names)

    def client(self, i: int) -> Client:
        """The client of a place, from the data."""
        return self.real[i]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self):,} clients, {self.classes} classes)"

    def at(self, round: int) -> Population:
        """The clients as they are after so many rounds of training."""
        if self._at or not self.course.phase(round):
            return self
        bring = lambda: self.real.at(round)  # noqa: E731
        return OpenedPopulation(self._known, self._held_by, self._key, bring, at=round)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the clients."""
        return self._known.names

    @cached_property
    def sizes(self) -> Tensor:
        """(n,) training samples of each client, float64."""
        phase = self.course.phase(self._at)
        if phase not in (0, 1):  # on their way: only the data tell
            return self.real.sizes
        samples = self._known.samples_after if phase else self._known.samples
        return torch.tensor(samples, dtype=torch.float64)

    @property
    def group(self) -> Tensor | None:
        """(n,) the planted group of each client, as the run recorded it."""
        if self._held_by.group is None:
            return None
        later = (self._held_by.rounds >= self._at).nonzero()[0]
        return torch.from_numpy(self._held_by.group[later[0]]) if len(later) else None

    @property
    def classes(self) -> int:
        """How many classes the labels have."""
        return len(self._known.spec.classes)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self._known.spec.classes

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return self._known.spec.shape

    @property
    def scaling(self) -> Mapping[str, Any]:
        """How the stored numbers became the clients'."""
        return self._known.spec.scaling

    @property
    def moves_at(self) -> int:
        """The round of a drift."""
        return self._known.moves_at

    @property
    def course(self) -> Course:
        """When samples change hands."""
        return Course(self._known.moves_at, self._known.pattern, self._known.span)

    @cached_property
    def arrives(self) -> Tensor | None:
        """(n,) the round from which on each client is there."""
        return torch.tensor(self._known.arrives) if self._known.arrives else None

    @cached_property
    def key(self) -> str:
        """The fingerprint of the data that the run was trained on."""
        return self._key


def known_of(
    population: Population, layout: Layout, seed: int, python: Mapping[str, Any] | None = None
) -> RunModel:
    """What a run's folder keeps of its clients and their network."""
    course, arrives = population.course, population.arrives
    whole = course.at + (course.span - 1 if course.pattern == "gradual" else 0)
    later = population.at(whole) if course.at else None
    return RunModel(
        ModelSpec.of(layout, population.shape, population.class_names, population.scaling),
        {name: s.stop - s.start for name, s in layout.slices.items()},
        seed,
        tuple(population.names),
        tuple(int(n) for n in population.sizes),
        course.at,
        () if later is None else tuple(int(n) for n in later.sizes),
        course.pattern,
        course.span,
        () if arrives is None else tuple(arrives.tolist()),
        population.public is not None,
        python,
    )
