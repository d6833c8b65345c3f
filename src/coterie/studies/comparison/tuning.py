"""Settings chosen before methods are compared: on validation data, of seeds that are not reported.

FOLDER/tuning/rung1/    an ordinary comparison of all candidates; with a budget, rung2 of the better
                        half with twice the rounds, and so on
FOLDER/tuning.json      what was tried and what was chosen
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from coterie.config.grid import Grid, refused
from coterie.config.tuning import Candidate, rungs
from coterie.core import storage
from coterie.core.best_by import full
from coterie.core.errors import CheckpointError, DivergedError
from coterie.core.events import Listener
from coterie.core.units import count
from coterie.runs.comparison import Cell, Comparison
from coterie.runs.tuning import Trial, Tuning, ranked
from coterie.studies.comparison.running import RunCells, run_missing, ways_to_run

Make = Callable[[Sequence[str], int], Grid]
"""The experiments of some candidates, by their labels, with so many rounds and the tuning seeds."""


@dataclass(frozen=True)
class Search:
    """What is tried of each method, and how the best of it is told."""

    candidates: Mapping[str, Sequence[Candidate]]  # by method
    seeds: tuple[int, ...]
    metric: str = "accuracy"
    budget: int | None = None  # whole runs for each method and seed

    @property
    def most(self) -> int:
        """The most candidates that a method has."""
        return max(map(len, self.candidates.values()))


def tune(
    search: Search,
    make: Make,
    rounds: int,
    folder: Path,
    *,
    jobs: int = 1,
    on_event: Listener | None = None,
) -> dict[str, Candidate]:
    """The best candidate of each method on validation data; all of it is recorded in `folder`.

    It goes on where it was stopped, and chooses the same whatever happened.
    """
    if search.most < 2:
        raise refused("there is one candidate, and nothing to choose", "name several: lr=0.01,0.1")
    left = {method: list(some) for method, some in search.candidates.items()}
    trials: list[Trial] = []
    plan = rungs(search.most, rounds, search.budget)
    for i, (_, length) in enumerate(plan, 1):
        asked = make([c.label for some in left.values() for c in some], length)
        at = folder / "tuning" / f"rung{i}"
        found = run_missing(at, asked.asked(), settled(asked, jobs), on_event, table=False)
        expect_all(found)
        last = i == len(plan)
        for method, some in left.items():
            seen = [trial_of(c, found, length, full(search.metric)) for c in some]
            trials += seen
            best = ranked(seen, full(search.metric))
            if best[0].mean is None:
                raise all_diverged(method, seen)
            keep = 1 if last else -(-len(some) // 2)
            kept = [trial.text for trial in best if trial.mean is not None][:keep]
            left[method] = [c for c in some if c.text in kept]
    chosen = {method: some[0] for method, some in left.items()}
    words = {method: candidate.text for method, candidate in chosen.items()}
    told = Tuning(full(search.metric), search.seeds, search.budget, tuple(trials), words)
    told.save(folder)
    return chosen


def settled(asked: Grid, jobs: int) -> RunCells:
    """The cells that are not done, without those that are known to diverge; who does is noted."""

    def run(several: RunCells, cells: Sequence[Cell], listen: Listener) -> dict[str, str]:
        failed = several([cell for cell in cells if not cell.diverged], listen)
        for cell in cells:
            why = failed.get(cell.folder.name, "")
            if why.startswith("error[R014]"):
                note = json.dumps({"why": why.splitlines()[0]}) + "\n"
                storage.replace_file(cell.folder / "diverged.json", note.encode())
        return failed

    return partial(run, ways_to_run(asked, jobs))


def expect_all(found: Comparison) -> None:
    """Refuse to choose while a run is missing for another reason than that it diverged."""
    lost = {c.folder.name for c in found.missing if not c.diverged}
    if lost:
        why = [f"{name}: {found.failed.get(name, 'not done')}".splitlines()[0] for name in lost]
        raise CheckpointError(
            f"{count(len(lost), 'run')} of {len(found.cells)} that are to choose by failed",
            code="K021",
            where="\n".join(sorted(why)[:5]),
            fix="mend that and give the same command again: what is done is kept",
        )


def trial_of(candidate: Candidate, found: Comparison, rounds: int, metric: str) -> Trial:
    """What a candidate was worth, seed by seed, in the round that its runs are taken at."""
    cells = {seed: found[candidate.label, seed] for seed in found.seeds}
    values = {
        str(seed): cell.summary["validation"][metric] if cell.done else None
        for seed, cell in cells.items()
    }
    return Trial(candidate.method, candidate.settings, candidate.text, rounds, values)


def all_diverged(method: str, trials: Sequence[Trial]) -> DivergedError:
    """The error of a method of which no candidate comes to its end."""
    return DivergedError(
        f"every candidate of {method} diverged",
        code="R014",
        where=", ".join(trial.text for trial in trials),
        fix="try smaller learning rates: lr=0.001,0.01",
    )


def tuned(grid: Grid, chosen: Mapping[str, Candidate], search: Search) -> Grid:
    """The comparison with what was chosen for each method, under the methods' own labels."""
    experiments = {method: grid.experiments[c.label] for method, c in chosen.items()}
    note = {
        "seeds": list(search.seeds),
        "metric": full(search.metric),
        "budget": search.budget,
        "chosen": {method: c.text for method, c in chosen.items()},
    }
    return replace(grid, experiments=experiments, tuning=note)
