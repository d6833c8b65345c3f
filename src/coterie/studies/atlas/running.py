"""Running the atlas: cell by cell, each an ordinary run, and on again after any stop.

In the folder of an atlas:
results.csv             a row for each run that is done; with --part, results-1of2.csv
work                    a folder with the run that is under way, and nothing else
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from coterie.config import Config
from coterie.config.grid import Grid, experiment_of, grid, split
from coterie.config.source import COMMAND_LINE, Written
from coterie.config.tables import table_name
from coterie.core import storage
from coterie.core.errors import DivergedError
from coterie.core.events import Listener, silence
from coterie.data import named
from coterie.data.readers.once import read_once
from coterie.runs import cell as runs
from coterie.runs.files import text_of
from coterie.runs.records import RunFolder
from coterie.runs.tuning import Tuning
from coterie.studies.atlas.grid import Atlas, Cell, Place, Settings
from coterie.studies.atlas.results import Results, Row, read, save
from coterie.studies.comparison.cells import error_text, run_cell
from coterie.studies.comparison.tuning import Search, tune
from coterie.studies.insight.signs import signs_of

LOOKING = "fedavg"  # whose experiment is looked at: all methods of a place have the same clients


@dataclass(frozen=True)
class Asked:
    """What of the atlas is run."""

    atlas: Atlas
    out: Path
    places: tuple[Place, ...]
    methods: tuple[str, ...]  # labels
    seeds: int = 3
    part: tuple[int, int] = (1, 1)  # which of how many
    given: tuple[tuple[str, Any], ...] = ()  # settings above the grid's
    results: tuple[Path, ...] = ()  # files of results that count as well

    @property
    def cut(self) -> str:
        """What is other than in the grid, in words: such results are kept apart."""
        silent = ("engine", "output")
        return "; ".join(f"{k} = {v}" for k, v in self.given if k.split(".")[0] not in silent)

    @property
    def name(self) -> str:
        """What the files of this part are called by."""
        i, n = self.part
        return "" if n == 1 else f"-{i}of{n}"

    @property
    def file(self) -> Path:
        """The results of this part."""
        return self.out / f"results{self.name}.csv"

    def known(self) -> Results:
        """All results there are, of this part and of others."""
        found = Results(self.atlas, self.cut)
        found.read([*self.results, *sorted(self.out.glob("results*.csv"))])
        return found

    def cells(self) -> list[Cell]:
        """The runs of this part; places go to parts in turn, whatever data a machine has."""
        i, n = self.part
        mine = [p for p in self.places[i - 1 :: n] if self.at_hand(p)]
        return self.atlas.cells(mine, self.methods, self.seeds)

    def at_hand(self, place: Place) -> bool:
        """Whether the data of a place are on this machine."""
        name = named.canonical(self.atlas.data[place.data].source)
        if name is None or named.NAMED[name].embedded:
            return True
        # Not every copy of a set says who wrote what.
        owned = not self.atlas.kinds[place.kind].own or named.may_own(name)
        return named.find(name) is not None and owned

    @property
    def absent(self) -> list[str]:
        """The data that are asked for and not on this machine."""
        kinds = self.atlas.kinds
        gone = [p for p in self.places if not self.at_hand(p)]
        return list(dict.fromkeys(p.data + f" ({p.kind})" * bool(kinds[p.kind].own) for p in gone))


@dataclass
class Runner:
    """Runs cells one after another, and writes down each when it is done."""

    asked: Asked
    known: Results
    tell: Listener = silence
    own: list[Row] = field(default_factory=list)  # the rows of this part's file

    @property
    def work(self) -> Path:
        """Where the run under way is."""
        return self.asked.out / f"work{self.asked.name}"

    def run(self, cells: Sequence[Cell]) -> None:
        """Whatever of these is not known yet."""
        missing = [cell for cell in cells if self.known.result(cell) is None]
        self.tell({"event": "atlas", "cells": len(missing), "known": len(cells) - len(missing)})
        for number, cell in enumerate(missing, 1):
            start = time.perf_counter()
            event = {"event": "cell", "cell": cell, "number": number, "cells": len(missing)}
            try:
                self.look(cell.place, cell.seed)
                row = self.one(cell)
            except Exception as error:  # one cell that fails does not end the others
                self.tell(event | {"failed": error_text(error)})
                continue
            self.tell(event | {"row": row, "seconds": time.perf_counter() - start})
        for place, seed in dict.fromkeys((cell.place, cell.seed) for cell in cells):
            try:
                self.look(place, seed)  # also where all runs were known
            except Exception as error:
                event = {"event": "cell", "cell": Cell(place, LOOKING, seed)}
                self.tell(event | {"failed": error_text(error)})

    def one(self, cell: Cell) -> Row:
        """A run, after its settings were chosen."""
        choice = self.known.choice(cell.place, cell.method) or self.keep(self.choose(cell))
        if choice.accuracy is None:
            return self.keep(self.row(cell, "result", choice.settings, None, note=choice.note))
        return self.keep(self.measure(cell, choice.settings))

    def look(self, place: Place, seed: int) -> None:
        """How the clients of a place differ, once for all methods; what is to come is not seen."""
        if self.asked.atlas.kinds[place.kind].drift or self.known.looked(place, seed):
            return
        config = experiment(self.given(place), LOOKING, seed)
        found = signs_of(config)
        told = " ".join(f"{name}={value:.3f}" for name, value in found.items())
        self.keep(self.row(Cell(place, "", seed), "signs", "", None, note=told))

    def keep(self, row: Row) -> Row:
        """Write a row down."""
        self.known.add([row])
        self.own.append(row)
        save(self.asked.file, self.own)
        self.clear()
        return row

    def clear(self) -> None:
        """Nothing of a run that is over stays but its row."""
        for part in self.work.iterdir():
            if part.is_dir():
                storage.remove_folder(part)

    def choose(self, cell: Cell) -> Row:
        """The best of a method's candidates on validation data, with a seed of its own.

        For as many rounds as are reported: a rate that is good at first may not be at the end, and
        where nothing is learned before the middle, half the rounds choose by noise.
        """
        atlas, place, method = self.asked.atlas, cell.place, cell.method
        candidates = atlas.contestant(method).candidates(method)
        seed = atlas.choosing(place)
        search = Search({method: candidates}, (seed,))
        given = self.given(place)

        def make(labels: Sequence[str], rounds: int) -> Grid:
            return grid(None, [*given, ("train.rounds", rounds)], labels, search.seeds)

        where, cell = self.work / "tuning", cell._replace(seed=seed)
        self.clear()
        try:
            best = tune(search, make, dict(given)["train.rounds"], where)[method]
        except DivergedError as error:
            return self.row(cell, "choice", candidates[0].label, None, note=error.what)
        found = Tuning.load(where)
        assert found is not None
        worth = {trial.text: trial.mean for trial in found.trials}
        tried = "; ".join(f"{text}: {found.shown(value)}" for text, value in worth.items())
        return self.row(cell, "choice", best.label, worth[best.text], note=tried)

    def measure(self, cell: Cell, label: str) -> Row:
        """A run with what was chosen."""
        self.clear()
        made = runs.Cell(self.work / "run", label, cell.seed)
        try:
            run_cell(experiment(self.given(cell.place), label, cell.seed), made, silence)
        except DivergedError as error:
            return self.row(cell, "result", label, None, note=error.what)
        summary, clusters = made.summary, made.summary["clusters"]
        return self.row(
            cell,
            "result",
            label,
            made.numbers["accuracy_mean"],
            worst=made.numbers["accuracy_bottom_10pct"],
            clusters=clusters.get("clusters") if summary.get("kind") == "clustered" else None,
            right=clusters.get("clusters_correct"),
            recovered=clusters.get("rounds_to_recover"),
            up=float(summary["bytes_up"]),
            down=float(summary["bytes_down"]),
            samples=float(made.facts["work"]["samples"]),
            seconds=made.seconds,
            scores=tuple(made.accuracy.values()),
            population=made.facts["population"][:16],
        )

    def row(
        self, cell: Cell, stage: str, settings: str, accuracy: float | None, **more: Any
    ) -> Row:
        """A row with all that is known beforehand."""
        atlas, place = self.asked.atlas, cell.place
        return Row(
            stage,
            atlas.role(place),
            *place,
            cell.method,
            cell.seed,
            settings,
            accuracy,
            version=atlas.version,
            revision=atlas.contestant(cell.method).revision,
            cut=self.asked.cut,
            **more,
        )

    def given(self, place: Place) -> Settings:
        """The settings of a place, and above them what this machine has and what was asked for."""
        slow = [] if find_spec("llvmlite") else [("engine.name", "auto")]
        return [*self.asked.atlas.experiment(place), *slow, *self.asked.given]


def run(asked: Asked, on_event: Listener | None = None) -> Results:
    """Run whatever is not done yet; all results there are."""
    found = Results(asked.atlas, asked.cut)
    runner = Runner(asked, found, on_event or silence)
    # No second process runs this part.
    with RunFolder(runner.work), read_once():
        found.rows = asked.known().rows
        if asked.file.exists():
            runner.own = read(text_of(asked.file))  # whatever they are of, they stay
        runner.run(asked.cells())
    return found


def experiment(given: Settings, label: str, seed: int) -> Config:
    """The experiment of one run."""
    known = {table_name(split(label)[0])}
    written = Written(COMMAND_LINE)
    written.places["method",] = COMMAND_LINE
    return experiment_of(written, [*given, ("seed", seed)], label, known)
