"""Methods side by side: a folder of runs, read back as one table, and what its tests find.

FOLDER/compare.toml         what was asked: methods, seeds, and the experiment of each method
FOLDER/fedavg-seed0/        an ordinary run (see runs/records.py), and when it is done, cell.json
FOLDER/table.csv            the table, without times: the same bytes however often it was stopped
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from coterie.core.errors import CheckpointError
from coterie.core.metric_names import less_is_better
from coterie.core.units import count
from coterie.runs import comparison_metrics, newcomers, statistics
from coterie.runs.cell import Cell as Cell
from coterie.runs.cell import cell_name as cell_name
from coterie.runs.comparison_text import written
from coterie.runs.files import toml_of, understanding
from coterie.runs.statistics import Friedman, Wilcoxon, shown
from coterie.runs.tuning import Tuning

Scores = Mapping[str, Mapping[int, Mapping[str, float]]]  # method -> seed -> client -> accuracy


@dataclass(frozen=True)
class Comparison:
    """Methods x seeds on the same clients, initial weights and draws."""

    folder: Path
    asked: Mapping[str, Any]  # compare.toml
    cells: tuple[Cell, ...]  # every one that was asked for, done or not; by seed, then by method
    failed: Mapping[str, str] = field(default_factory=dict)  # name of a cell -> why, if it just ran

    def __repr__(self) -> str:
        done = sum(cell.done for cell in self.cells)
        return f"Comparison({done} of {count(len(self.cells), 'run')} done in {self.folder})"

    @classmethod
    def load(cls, folder: str | Path) -> Comparison:
        """A comparison as its folder has it now; nothing is run and nothing is written."""
        path = Path(folder)
        file = path / "compare.toml"
        if not file.exists():
            raise CheckpointError(
                f"{path} is not the folder of a comparison",
                code="K011",
                why="it has no compare.toml",
                fix="name a folder that `coterie compare` wrote",
            )
        asked = toml_of(file)
        with understanding(file):
            cells = tuple(
                Cell(path / cell_name(label, seed), label, int(seed))
                for seed in asked["seeds"]
                for label in asked["methods"]
            )
            if not isinstance(asked["experiments"], Mapping):
                raise TypeError("its experiments are no table")
            int(asked["last_k"])
        return cls(path, asked, cells)

    @property
    def methods(self) -> tuple[str, ...]:
        """The labels, in the order they were asked for."""
        return tuple(self.asked["methods"])

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, in order."""
        return tuple(self.asked["seeds"])

    @property
    def last_k(self) -> int:
        """Rounds in the mean over the last ones."""
        return int(self.asked["last_k"])

    @property
    def target(self) -> float | None:
        """The accuracy whose first round is told."""
        return self.asked.get("target")

    @property
    def missing(self) -> tuple[Cell, ...]:
        """The cells that are not done."""
        return tuple(cell for cell in self.cells if not cell.done)

    @property
    def chosen(self) -> bool:
        """Whether the round of each run that counts was chosen on validation data."""
        asked = self.asked["experiments"].values()  # from Python, the keywords of `fit`
        return any(e.get("stop") or e.get("train", {}).get("stop") for e in asked)

    @cached_property
    def tuning(self) -> Tuning | None:
        """What was tried for each method and what was chosen; None where nothing was tuned."""
        return Tuning.load(self.folder)

    @property
    def newcomers(self) -> bool:
        """Whether clients were held out, who joined when the training was over."""
        return any(e.get("newcomers", {}).get("share") for e in self.asked["experiments"].values())

    def of(self, label: str) -> tuple[Cell, ...]:
        """The cells of a method that are done, by seed."""
        return tuple(cell for cell in self.cells if cell.label == label and cell.done)

    def __getitem__(self, key: tuple[str, int]) -> Cell:
        """The cell of a method and a seed."""
        return next(c for c in self.cells if (c.label, c.seed) == key)

    def __iter__(self) -> Iterator[Cell]:
        return iter(self.cells)

    def table(self) -> list[dict[str, Any]]:
        """A row for each method that has a run which is done; see docs/compare.md for the columns.

        Accuracies are means over seeds, `..._interval` the half-width of their 95 % interval.
        """
        return [self.row(label) for label in self.methods if self.of(label)]

    def row(self, label: str) -> dict[str, Any]:
        """The numbers of one method, over the seeds that are done."""
        cells = self.of(label)

        def over(name: str) -> statistics.Interval:
            return statistics.interval([c.numbers[name] for c in cells])

        means = {
            "last": over("accuracy_mean"),
            f"last_{self.last_k}": over(f"accuracy_last_{self.last_k}"),
            "top_5": over("accuracy_top_5"),
        }
        row: dict[str, Any] = {"method": label, "runs": len(cells), "stage": cells[0].stage}
        if self.tuning:
            row["chosen"] = self.tuning.chosen.get(label, "")
        for name, value in means.items():
            row |= {f"accuracy_{name}": value.mean, f"accuracy_{name}_interval": value.half}
        row |= comparison_metrics.columns(cells, self.metrics)
        for name in ("weighted_top_5", "bottom_5_top_5"):
            found = [v for c in cells if (v := c.numbers.get(f"accuracy_{name}")) is not None]
            row[name] = sum(found) / len(found) if found else None  # older folders do not tell
        row["std_seeds"] = means["last"].std
        row["std_clients"] = over("accuracy_std").mean
        for name in ("worst", "bottom_5", "bottom_10pct"):
            row[name] = over(f"accuracy_{name}").mean
        for name in ("rounds", "bytes"):
            hit = [v for c in cells if (v := c.numbers.get(f"{name}_to_target")) is not None]
            row[f"{name}_to_target"] = sum(hit) / len(hit) if hit else None
        row["reached"] = None if self.target is None else len(hit)
        row["models"] = cells[0].summary.get("kind")  # older folders do not tell
        for name in ("clusters", "ari", "clusters_correct"):
            found = [c.summary["clusters"][name] for c in cells if name in c.summary["clusters"]]
            row[name] = sum(found) / len(found) if found else None
        last = [c.clusters.settled for c in cells if row["models"] == "clustered"]
        row["settled"] = sum(last) / len(last) if last else None
        for name in ("bytes_up", "bytes_down"):
            row[name] = sum(c.summary[name] for c in cells) / len(cells)
        row["bytes"] = row["bytes_up"] + row["bytes_down"]
        work = cells[0].facts["work"]
        row |= {k: work.get(k) for k in ("epochs", "steps", "batch", "lr", "participation")}
        row["recipe"] = work.get("recipe", "")  # runs of older versions do not tell
        row["own_work"] = work.get("own", "")
        row["samples"] = sum(c.facts["work"]["samples"] for c in cells) / len(cells)
        if self.newcomers:
            joined = [j for c in cells if (j := newcomers.read(c.folder))]
            row["newcomers_given"] = newcomers.mean(j.accuracy(0) for j in joined)
            row["newcomers_adapted"] = newcomers.mean(j.accuracy(j.epochs) for j in joined)
            row["newcomers_assigned"] = newcomers.mean(j.assigned() for j in joined)
        row["seconds"] = sum(c.seconds for c in cells) / len(cells)
        for where in ("clients", "tests", "server"):
            row[f"seconds_{where}"] = sum(c.spent[where] for c in cells) / len(cells)
        return row

    @property
    def metrics(self) -> tuple[str, ...]:
        """What every run measured beside accuracy and loss."""
        return comparison_metrics.measured([cell for cell in self.cells if cell.done])

    def tests(self, metric: str = "accuracy") -> Findings:
        """The methods against each other, pair by pair and all together, by a metric.

        Where less is better, differences count the other way round: above 0 is better.
        """
        sign = -1 if less_is_better(metric) else 1
        done = {label: cells for label in self.methods if (cells := self.of(label))}
        return findings(
            {
                m: {c.seed: {n: sign * v for n, v in c.clients(metric).items()} for c in cells}
                for m, cells in done.items()
            }
        )

    def to(self, format: str = "text") -> str:
        """The table and the tests as text, md, csv, latex or html; csv has the table alone."""
        return written(self, format)

    def _repr_html_(self) -> str:
        return self.to("html")

    def __str__(self) -> str:
        return self.to("text")


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
    by_seed = {m: [float(np.mean(list(scores[m][s].values()))) for s in seeds] for m in methods}
    found = [
        tuple(
            statistics.wilcoxon(values[b], values[a], b, a, over)
            for values, over in ((by_client, "clients"), (by_seed, "seeds"))
        )
        for a, b in combinations(methods, 2)
    ]
    adjusted = [statistics.holm([two[i].p for two in found]) for i in (0, 1)]
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
    return statistics.friedman(np.array(list(values.values())).T.tolist(), list(values), over)
