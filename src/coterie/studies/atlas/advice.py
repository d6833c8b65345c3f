"""What the atlas taught, as a small file that comes with the package; `coterie atlas` writes it.

It holds what was measured and nothing else: for each kind of difference what the results say, and
the signs of every place, by which a reader finds the kind that its own clients are most like.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from math import dist
from pathlib import Path
from typing import Any, NamedTuple

from coterie.core import storage
from coterie.core.units import count
from coterie.core.version import __version__
from coterie.studies.atlas.findings import Finding, findings
from coterie.studies.atlas.results import Results
from coterie.studies.atlas.tables import safety

FILE = files("coterie.experiments") / "advice.json"
NEAR = 3  # cases (a place with a seed) that say what a federation is like


class Sight(NamedTuple):
    """What was seen in a place, with one seed."""

    kind: str
    data: str
    size: int
    signs: tuple[float, ...]  # in the order of the file's `signs`

    @property
    def place(self) -> tuple[str, str, int]:
        """Where it was."""
        return self.kind, self.data, self.size


@dataclass(frozen=True)
class Lesson:
    """What the results say of a kind of difference."""

    kind: str
    what: str
    text: str  # the advice
    best: str
    level: tuple[str, ...]  # who is not told apart from the best
    below: tuple[str, ...]  # who is clearly below FedAvg
    runs: int
    places: int


@dataclass(frozen=True)
class Reading:
    """The kind of difference that some clients are most like, and how sure that is."""

    kind: str
    near: tuple[str, ...]  # the kinds of the nearest cases, the nearest first
    right: int  # of the atlas' own cases that were read as this kind, how many were
    of: int
    far: bool  # further from every place than places are from one another

    @property
    def votes(self) -> int:
        """How many of the nearest are of that kind."""
        return sum(kind == self.kind for kind in self.near)

    @property
    def sure(self) -> bool:
        """Whether most of the nearest are of that kind, and near."""
        return 2 * self.votes > len(self.near) and not self.far

    @property
    def text(self) -> str:
        """What is seen, and how sure."""
        others = [kind for kind in dict.fromkeys(self.near) if kind != self.kind]
        said = f"most like {self.kind!r}, as {self.votes} of the {len(self.near)} nearest cases are"
        said += f", besides {', '.join(others)}" if others else ""
        if self.of:
            said += f"; of its own cases that were read so, {self.right} of {self.of} were"
        return said + "; but unlike anything in the atlas" * self.far


@dataclass(frozen=True)
class Advice:
    """Everything that the atlas taught."""

    version: int  # of the grid
    coterie: str
    signs: tuple[str, ...]  # their names
    sights: tuple[Sight, ...]
    lessons: Mapping[str, Lesson]  # by kind
    safety: Mapping[str, tuple[str, ...]]  # by method: a row of the table `safety`

    @classmethod
    def load(cls, file: Path | Traversable = FILE) -> Advice | None:
        """What a file has; None without one."""
        if not file.is_file():
            return None
        found = json.loads(file.read_text(encoding="utf-8"))
        return cls(
            found["version"],
            found["coterie"],
            tuple(found["signs"]),
            tuple(map(sight_in, found["sights"])),
            {k: lesson_of(one) for k, one in found["lessons"].items()},
            {m: tuple(row) for m, row in found["safety"].items()},
        )

    def save(self, file: Path) -> None:
        """Write it, the same bytes for the same results."""
        plain = asdict(self) | {"sights": [told(sight) for sight in self.sights]}
        storage.replace_file(file, (json.dumps(plain, indent=1) + "\n").encode())

    def read(self, signs: Mapping[str, float]) -> Reading | None:
        """The kind that clients with these signs are most like; None if nothing was seen yet."""
        if not self.sights:
            return None
        mine = tuple(signs[name] for name in self.signs)
        kind, near, distance = nearest(mine, self.sights)
        known = [(s, nearest(s.signs, others)) for s, others in self.apart()]
        read_so = [s.kind == kind for s, (guess, _, _) in known if guess == kind]
        usual = max((d for _, (_, _, d) in known), default=0.0)
        return Reading(kind, near, sum(read_so), len(read_so), bool(known) and distance > usual)

    def apart(self) -> Iterator[tuple[Sight, list[Sight]]]:
        """Each sight, and those of all other places."""
        for sight in self.sights:
            others = [s for s in self.sights if s.place != sight.place]
            if others:
                yield sight, others


def nearest(signs: Sequence[float], sights: Sequence[Sight]) -> tuple[str, tuple[str, ...], float]:
    """The kind that most of the nearest places have, the kinds of these, and how near one is."""
    near = sorted(sights, key=lambda s: dist(signs, s.signs))[:NEAR]
    kinds = tuple(s.kind for s in near)
    # Of kinds that are as many, the nearest: a counter keeps the order in which they came.
    return Counter(kinds).most_common(1)[0][0], kinds, dist(signs, near[0].signs)


def told(sight: Sight) -> str:
    """A sight on a line.

    >>> told(Sight("none", "digits", 30, (0.5, 0.25))), sight_in("none digits 30 0.5 0.25").signs
    ('none digits 30 0.5 0.25', (0.5, 0.25))
    """
    return " ".join(map(str, (*sight.place, *sight.signs)))


def sight_in(line: str) -> Sight:
    """The sight on a line."""
    kind, data, size, *signs = line.split()
    return Sight(kind, data, int(size), tuple(map(float, signs)))


def lesson_of(found: Mapping[str, Any]) -> Lesson:
    """A lesson from plain values."""
    plain: dict[str, Any] = dict(found)
    return Lesson(**plain | {k: tuple(plain[k]) for k in ("level", "below")})


def learned(results: Results) -> Advice:
    """What results teach."""
    found = findings(results)
    seen = [(row, signs_in(row.note)) for row in results.of("signs")]
    seen.sort(key=lambda pair: (*pair[0].place, pair[0].seed))
    names = tuple(seen[0][1]) if seen else ()
    return Advice(
        results.atlas.version,
        __version__,
        names,
        tuple(Sight(*row.place, tuple(signs.values())) for row, signs in seen),
        {f.kind: lesson(f) for f in found},
        {row[0]: row[1:] for row in safety(results, found).rows},
    )


def signs_in(note: str) -> dict[str, float]:
    """The signs that a row tells.

    >>> signs_in("labels=0.500 sizes=0.010")
    {'labels': 0.5, 'sizes': 0.01}
    """
    pairs = (word.split("=") for word in note.split())
    return {name: float(value) for name, value in pairs}


def lesson(found: Finding) -> Lesson:
    """A finding as it is kept."""
    return Lesson(
        found.kind,
        found.what,
        found.advice,
        found.best.method,
        tuple(found.level),
        tuple(s.method for s in found.standings if "fedavg" in s.below),
        found.runs,
        len(found.places),
    )


def said_of(method: str, advice: Advice | None) -> str:
    """How a method stands in the atlas, in words."""
    row = advice.safety.get(method) if advice else None
    if row is None:
        return "the atlas has no results of it yet"
    level, lost = row[:2]
    here, of = level.split("/")
    places = count(int(of), "place")
    text = f"in the atlas level with the best in {here} of {places}"
    return (
        text
        if lost == "n/a"
        else f"{text}, at most {lost.lstrip('-+')} points below FedAvg, tuned or not"
    )
