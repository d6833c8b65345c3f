"""What was tried and what was chosen of it, as tuning.json in a comparison's folder has it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from coterie.core import best_by, storage
from coterie.core.metric_names import less_is_better
from coterie.core.units import count
from coterie.runs.files import json_of, understanding
from coterie.runs.text_table import TextTable

FILE = "tuning.json"


@dataclass(frozen=True)
class Trial:
    """One candidate: what it was worth on validation data after so many rounds, seed by seed."""

    method: str
    settings: Mapping[str, Any]
    text: str  # the settings in words
    rounds: int
    values: Mapping[str, float | None]  # by seed; None: training diverged

    @property
    def mean(self) -> float | None:
        """The mean over seeds; None where training diverged in one."""
        known = [v for v in self.values.values() if v is not None]
        whole = len(known) == len(self.values) and all(v == v for v in known)
        return sum(known) / len(known) if whole and known else None


@dataclass(frozen=True)
class Tuning:
    """All that was tried of each method, and what was chosen."""

    metric: str  # as metrics.csv has it, of stage validation
    seeds: tuple[int, ...]  # that chose: none of those that are reported
    budget: int | None
    trials: tuple[Trial, ...]  # of all rungs, in order
    chosen: Mapping[str, str] = field(default_factory=dict)  # method -> the settings in words

    @classmethod
    def load(cls, folder: Path) -> Tuning | None:
        """What a folder's tuning.json has; None without one."""
        file = folder / FILE
        if not file.exists():
            return None
        with understanding(file):
            found = json_of(file)
            trials = tuple(Trial(**trial) for trial in found.pop("trials"))
            return cls(**found | {"trials": trials, "seeds": tuple(found["seeds"])})

    def save(self, folder: Path) -> None:
        """Write it, the same bytes for the same choice."""
        text = json.dumps(asdict(self), indent=1) + "\n"
        storage.replace_file(folder / FILE, text.encode())

    def of(self, method: str) -> list[Trial]:
        """The last trial of each candidate of a method, the best first; who diverged at the end."""
        last = {trial.text: trial for trial in self.trials if trial.method == method}
        return ranked(list(last.values()), self.metric)

    def mattered(self, method: str) -> str:
        """How much the choice mattered on validation data, in words."""
        trials = self.of(method)
        full = [t for t in trials if t.mean is not None and t.rounds == trials[0].rounds]
        lost = [t.text for t in trials if t.mean is None]
        diverged = f"; {', '.join(lost)} diverged" if lost else ""
        if len(full) < 2 or full[0].mean is None or full[-1].mean is None:
            return f"{method}: {self.chosen[method]}{diverged}"
        best, worst = self.shown(full[0].mean), self.shown(full[-1].mean)
        return f"{method}: {self.chosen[method]} with {best}, {full[-1].text} {worst}{diverged}"

    @property
    def named(self) -> str:
        """The seeds that chose, in words."""
        return f"seed{'s' * (len(self.seeds) > 1)} {', '.join(map(str, self.seeds))}"

    def shown(self, value: float | None) -> str:
        """A value of the metric; a share in percent."""
        if value is None:
            return "diverged"
        share = not less_is_better(self.metric) and 0 <= value <= 1
        return f"{100 * value:.1f}" if share else f"{value:.4f}"

    def behind(self, trial: Trial) -> str:
        """How far a candidate is behind the best of its method that was trained as long."""
        best = self.of(trial.method)[0]
        if trial.mean is None or best.mean is None or trial.rounds != best.rounds:
            return ""
        return self.shown(abs(best.mean - trial.mean))

    def sentences(self) -> list[str]:
        """On what it was chosen, what everybody was given, and how much it mattered."""
        tried = {m: len({t.text for t in self.trials if t.method == m}) for m in self.chosen}
        equal = f"{count(max(tried.values(), default=0), 'candidate')} each"
        if len(set(tried.values())) > 1:
            equal = "candidates: " + ", ".join(f"{n} of {m}" for m, n in tried.items())
        most = f", at most {count(self.budget, 'whole run')} each" if self.budget else ""
        how = f"by {self.metric} on validation data of {self.named}, not among those reported"
        return [
            f"Chosen {how}; {equal}{most}.",
            "On validation data: " + "; ".join(map(self.mattered, self.chosen)) + ".",
            *self.at_the_end(),
        ]

    def at_the_end(self) -> list[str]:
        """Choices that are the largest or the smallest number that was tried."""
        found: dict[str, list[str]] = {}
        for method, text in self.chosen.items():
            mine = [t for t in self.trials if t.method == method]
            best = next(t for t in mine if t.text == text)
            for key, value in best.settings.items():
                known = {t.settings[key] for t in mine if is_number(t.settings[key])}
                if is_number(value) and len(known) > 1 and value in (min(known), max(known)):
                    end = "largest" if value == max(known) else "smallest"
                    said = f"{key.split('.', 1)[1]} = {value:g} is the {end} that was tried"
                    found.setdefault(said, []).append(method)
        return [
            f"{said} for {', '.join(who)}: beyond it may be better." for said, who in found.items()
        ]

    def table(self) -> TextTable:
        """Every candidate, and which was chosen."""
        title = f"{self.metric} on validation data: mean over {self.named}"
        rows = tuple(
            (
                method,
                trial.text,
                self.shown(trial.mean),
                self.behind(trial),
                f"{trial.rounds}",
                "chosen" if trial.text == self.chosen[method] else "",
            )
            for method in self.chosen
            for trial in self.of(method)
        )
        return TextTable(title, ("method", "candidate", "validation", "behind", "rounds", ""), rows)


def is_number(value: object) -> bool:
    """Whether values can be put in order by their size."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def ranked(trials: Sequence[Trial], metric: str) -> list[Trial]:
    """Trials, the best first: who was trained longest, then by value; equal ones as they came."""

    def order(trial: Trial) -> tuple[int, bool, float]:
        value = trial.mean
        worth = 0.0 if value is None else best_by.value(metric, value)
        return -trial.rounds, value is None, -worth

    return sorted(trials, key=order)
