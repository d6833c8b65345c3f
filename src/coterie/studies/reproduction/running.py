"""Running a table's settings: one comparison for each, and on again after any stop.

OUT/feddsmic-2/mnist_alpha=0.05/      an ordinary comparison (see runs/comparison.py)
OUT/feddsmic-2/feddsmic-2.csv         paper and measured side by side; feddsmic-3.csv beside it
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import as_file
from pathlib import Path
from typing import Any

from coterie.config import toml
from coterie.config.grid import Grid, grid, split
from coterie.config.tables import table_name
from coterie.core import storage
from coterie.core.errors import CheckpointError, ConfigError
from coterie.core.events import Listener, silence
from coterie.core.suggest import similar
from coterie.methods import METHODS
from coterie.runs.comparison import Cell, Comparison
from coterie.studies.comparison.cells import run_cell
from coterie.studies.comparison.running import differences, in_turn, run_missing
from coterie.studies.reproduction.measures import RESTS_ON
from coterie.studies.reproduction.papers import TABLES
from coterie.studies.reproduction.table import Setting, Table
from coterie.studies.run.started import flat, started_with

SILENT = ("engine", "output")  # tables of a file that change no number
LONGEST = 150  # characters in which a folder's name tells how a table was cut; else a hash does
WIDER = ("seeds", "methods")  # keys of a comparison in which a later call may have more


@dataclass(frozen=True)
class Asked:
    """What of a table is run, and how it is cut short."""

    table: Table
    out: Path
    settings: tuple[Setting, ...]
    methods: tuple[str, ...]  # labels
    seeds: int = 1
    given: tuple[tuple[str, Any], ...] = ()  # above the file, for all

    @property
    def folder(self) -> Path:
        """Where its runs are: those of a table that was cut short are apart."""
        cut = "".join(f"_{key.split('.')[-1]}={value}" for key, value in self.changed)
        if len(cut) > LONGEST:
            cut = f"_{hashlib.sha256(repr(self.changed).encode()).hexdigest()[:16]}"
        return self.out / f"{self.table.experiment}{cut}"

    @property
    def changed(self) -> list[tuple[str, Any]]:
        """The settings of this call that change what is measured."""
        return [(k, v) for k, v in self.given if k.split(".")[0] not in SILENT]

    def tells(self, metric: str) -> bool:
        """Whether runs that were cut like this can still tell a metric of the table."""
        needed = RESTS_ON.get(self.table.named[metric], ())
        return not any(key in needed for key, _ in self.changed)


def find(name: str) -> Table:
    """The table of a name."""
    if name not in TABLES:
        fix = similar(name.lower(), TABLES) or "`coterie reproduce` lists them"
        raise ConfigError(f"there is no table {name!r}", code="C070", fix=fix)
    return TABLES[name]


def ask(
    name: str,
    out: str | Path,
    datasets: Sequence[str] = (),
    methods: Sequence[str] = (),
    seeds: int = 1,
    given: Iterable[tuple[str, Any]] = (),
    named: Sequence[str] = (),
) -> Asked:
    """What a caller wants of a table; whatever cannot be run is refused.

    `named` are parts of the names of its settings, of which one is enough.
    """
    table = find(name)
    if not table.experiment:
        raise ConfigError(
            f"{name} is not run", code="C070", why=table.absent.get("", ""), fix="choose another"
        )
    known = {s.source for s in table.settings}
    if strange := next((d for d in datasets if d not in known), None):
        why = f"it has no {strange} that can be run here"
        raise ConfigError(f"{name}: {why}", code="C070", fix=f"one of {', '.join(sorted(known))}")
    labels = tuple(label_of(table, m) for m in methods) or table.labels
    settings = tuple(s for s in table.settings if not datasets or s.source in datasets)
    found = [s for part in named for s in settings_named(table, settings, part)]
    settings = tuple(s for s in settings if not named or s in found)
    return Asked(table, Path(out), settings, labels, seeds, tuple(given))


def settings_named(table: Table, settings: Sequence[Setting], part: str) -> list[Setting]:
    """Those of some settings of a table that have this name, or if none has, in their name."""
    wanted = part.casefold()
    exact = [s for s in settings if s.name.casefold() == wanted]
    found = exact or [s for s in settings if wanted in s.name.casefold()]
    if not found:
        fix = f"one of {', '.join(dict.fromkeys(s.name for s in settings))}"
        raise ConfigError(f"{table.name} has no setting {part!r}", code="C070", fix=fix)
    return found


def label_of(table: Table, name: str) -> str:
    """The label of a method, named as the paper or as the file does."""
    found = {m.casefold(): label for m, label in table.methods.items()}
    if name in table.labels:
        return name
    if name.casefold() not in found:
        fix = similar(name, table.labels) or f"one of {', '.join(table.labels)}"
        raise ConfigError(f"{table.name} has no method {name}", code="C070", fix=fix)
    return found[name.casefold()]


def cuts(asked: Asked, setting: Setting) -> str:
    """What is less or other than in the paper, in words."""
    changed = [f"{key} = {value}" for key, value in asked.changed]
    return "; ".join([setting.differs, *changed] if setting.differs else changed)


def fingerprint(asked: Asked, setting: Setting, label: str) -> str:
    """A short name of all settings that a number comes of: those of the file and those above it.

    Only what is said counts, not what follows by default: a key that comes later changes none.
    """
    method, own = split(label)
    others = {table_name(name) for name in METHODS} - {table_name(method)}
    file: dict[str, Any] = tomllib.loads(asked.table.file.read_text(encoding="utf-8"))
    tables = {name: keys for name, keys in file.items() if isinstance(keys, dict)}
    said = {f"{name}.{k}": v for name, keys in tables.items() for k, v in keys.items()}
    said |= {**setting.given, **dict(asked.given), **dict(own)}
    kept = {k: v for k, v in said.items() if k.split(".")[0] not in {*others, *SILENT}}
    text = json.dumps({"method": method, **kept}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def run(
    asked: Asked,
    on_event: Listener | None = None,
    wanted: Callable[[Setting], Sequence[str]] | None = None,
) -> None:
    """Run whatever of it is not done yet, setting by setting: the `wanted` labels of each."""
    for setting in asked.settings:
        labels = asked.methods if wanted is None else wanted(setting)
        if labels:
            run_setting(asked, setting, labels, on_event or silence)


def run_setting(
    asked: Asked, setting: Setting, labels: Sequence[str], listen: Listener
) -> Comparison:
    """The runs of one setting that are wanted and not done yet."""
    made, folder = experiments(asked, setting), asked.folder / setting.folder

    def one(cell: Cell, tell: Listener) -> None:
        run_cell(made.config(cell.label, cell.seed), cell, tell)

    return run_missing(
        folder,
        widened(folder, made.asked()),
        partial(in_turn, one),
        listen,
        wanted=lambda cell: cell.label in labels and cell.seed in made.seeds,
    )


def experiments(asked: Asked, setting: Setting) -> Grid:
    """The experiments of a setting: of all methods, for they must share their clients."""
    table = asked.table
    with as_file(table.file) as path:
        labels = listed(path)
        return grid(path, [*setting.given.items(), *asked.given], labels, asked.seeds)


def candidates(
    asked: Asked, setting: Setting, more: Iterable[tuple[str, Any]], seeds: Sequence[int]
) -> Callable[[Sequence[str], int], Grid]:
    """The experiments of some candidates in a setting, with so many rounds and these seeds."""
    given = [*setting.given.items(), *asked.given, *more]

    def make(labels: Sequence[str], rounds: int) -> Grid:
        with as_file(asked.table.file) as path:
            return grid(path, [*given, ("train.rounds", rounds)], labels, seeds)

    return make


def listed(path: Path) -> list[str]:
    """The methods that a file lists."""
    return [str(m) for m in tomllib.loads(path.read_text(encoding="utf-8"))["method"]]


def widened(folder: Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked, with the seeds that the folder has already; refused if runs would differ.

    Methods that the file has listed since join those that are there.
    """
    file = folder / "compare.toml"
    if not file.exists():
        return dict(asked)
    then = tomllib.loads(file.read_text(encoding="utf-8"))
    seeds = sorted({*then["seeds"], *asked["seeds"]})
    methods = list(dict.fromkeys([*asked["methods"], *then["methods"]]))
    wide = {**asked, "seeds": seeds, "methods": methods}
    before, now = started_with(file.read_text(encoding="utf-8")), flat(toml.write(wide))
    # A key that came later meant its default then.
    both = [k for k in before if k in now and ".engine." not in k and k not in WIDER]
    before, now = ({k: read[k] for k in both} for read in (before, now))
    if lines := differences(before, now, list(asked["methods"])):
        raise CheckpointError(
            f"{folder} holds runs of other settings",
            code="K012",
            where="\n".join(lines),
            fix="put the settings back, or choose another folder with --out",
        )
    # With the engine they were begun with.
    wide["experiments"] = {**asked["experiments"], **then["experiments"]}
    storage.replace_file(file, toml.write(wide).encode())
    return wide
