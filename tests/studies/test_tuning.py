"""Settings are chosen on validation data of other seeds, the same after any stop, and told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coterie.cli.main import call
from coterie.config import load
from coterie.config.tuning import axes, candidates, expect_used, rungs, seeds_to_choose_by
from coterie.core.errors import CheckpointError, ConfigError
from coterie.runs.comparison import Comparison
from coterie.runs.tuning import Trial, Tuning, ranked
from coterie.studies.comparison import running

SMALL = ["partition.clients=2", "model.name=mclr", "train.rounds=2", "train.local_epochs=1", "-q"]
TUNED = ["compare", "--methods", "fedavg,local", "--seeds", "1", "--tune-seeds", "1", *SMALL]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Everything that must not depend on whether it was stopped."""
    names = ("table.csv", "tuning.json", "compare.toml", "metrics.csv", "clusters.csv")
    found = sorted(f for name in names for f in folder.rglob(name))
    return {str(f.relative_to(folder)): f.read_bytes() for f in found}


def test_a_method_is_tried_with_every_combination_and_with_its_default() -> None:
    asked = axes(["lr=0.01,0.1", "kin.gain=0.1,0.2 train.momentum=0.9"])
    labels = [c.label for c in candidates("fedavg", asked)]
    assert labels == [f"fedavg:train.lr={lr}:train.momentum=0.9" for lr in (0.01, 0.1)]
    assert len(candidates("kin", asked)) == 4
    (extra,) = candidates("ifca", axes(["clusters=3"]))[1:]
    assert extra.label == "ifca:clusters=4"
    assert extra.text == "clusters = 4 (default)"
    assert [c.text for c in candidates("ifca", axes(["lr=0.1"]))] == ["lr = 0.1 (default)"]
    assert [c.text for c in candidates("kin", axes(["lr=0.5"]))] == ["lr = 0.5"], "it has no paper"


def test_what_a_method_sets_itself_is_not_tried() -> None:
    (only,) = candidates("fedavg:train.lr=0.3", axes(["lr=0.01,0.1"]))
    assert only.label == "fedavg:train.lr=0.3"


@pytest.mark.parametrize("key", ["partition.clients", "rounds", "train.stop", "margn", "data.pool"])
def test_what_would_be_another_experiment_is_not_tried(key: str) -> None:
    with pytest.raises(ConfigError, match="cannot be tried"):
        expect_used(axes([f"{key}=1,2"]), ["fedavg", "kin"])


def test_the_seeds_that_choose_are_never_reported() -> None:
    assert not set(seeds_to_choose_by(range(1200), 3)) & set(range(1200))


def test_halving_stays_within_its_budget_or_is_refused_with_what_would_do() -> None:
    for n in range(2, 30):
        for budget in range(1, n):
            try:
                plan = rungs(n, 16, budget)
            except ConfigError as error:
                least = int(error.fix.split()[2])
                assert budget < least <= n
                assert rungs(n, 16, least)
                continue
            assert sum(many * length for many, length in plan) <= budget * 16
            assert plan[0][0] == n


def test_the_best_mean_is_chosen_who_diverges_is_out_and_of_equals_the_first() -> None:
    def trial(text: str, *values: float | None) -> Trial:
        return Trial("m", {}, text, 5, {str(i): v for i, v in enumerate(values)})

    some = [trial("a", 0.9, None), trial("b", 0.5, 0.7), trial("c", 0.6, 0.6), trial("d", 0.1, 0.2)]
    assert [t.text for t in ranked(some, "accuracy_mean")] == ["b", "c", "d", "a"]
    assert [t.text for t in ranked(some, "loss")] == ["d", "b", "c", "a"]


def test_a_choice_at_the_end_of_what_was_tried_is_told() -> None:
    trials = [
        Trial(m, {"train.lr": lr, "m.how": "x"}, f"lr = {lr}", 5, {"1000": worth})
        for m, best in (("a", 0.1), ("b", 0.1), ("c", 0.03))
        for lr in (0.01, 0.03, 0.1)
        for worth in [1.0 if lr == best else 0.5]
    ]
    chosen = {"a": "lr = 0.1", "b": "lr = 0.1", "c": "lr = 0.03"}
    told = Tuning("accuracy_mean", (1000,), None, tuple(trials), chosen).sentences()
    assert told[2:] == ["lr = 0.1 is the largest that was tried for a, b: beyond it may be better."]


def test_a_comparison_tunes_each_method_and_reports_other_seeds() -> None:
    assert call([*TUNED, "--tune", "lr=0.0001,0.5", "--out", "c"]) == 0
    found = Comparison.load("c")
    assert found.tuning is not None
    assert found.tuning.chosen == {"fedavg": "lr = 0.5", "local": "lr = 0.5"}
    assert found.seeds == (0,)
    assert found.tuning.seeds == (1000,)
    for row in found.table():
        assert (row["chosen"], row["lr"]) == ("lr = 0.5", 0.5)
    assert "chosen" in found.to("text").splitlines()[1]
    assert "fedavg: lr = 0.5 with" in found.to("text")
    page = (Path("c") / "report.html").read_text()
    assert "What was tried, what was chosen" in page
    assert found["fedavg", 0].summary["validation"]["clients"] == 2
    assert not (Path("c") / "tuning" / "rung1" / "table.csv").exists(), "no table of test numbers"
    refused = CheckpointError("", code="K012").exit
    assert call([*TUNED, "--tune", "lr=0.01,0.1", "--out", "c"]) == refused, "another grid"


def test_the_choice_follows_from_validation_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of runs whose test rows say the opposite, the same candidate is chosen."""
    from coterie.studies.comparison import tuning

    seen: list[dict[str, Any]] = []
    usual = tuning.trial_of

    def turned(candidate: Any, found: Comparison, rounds: int, metric: str) -> Trial:
        for cell in (found[candidate.label, seed] for seed in found.seeds):
            for stage in ("before", "after"):
                if stage in cell.summary:
                    worse = {k: -v for k, v in cell.summary[stage].items() if v is not None}
                    cell.summary[stage].update(worse)
            seen.append(dict(cell.summary))
        return usual(candidate, found, rounds, metric)

    monkeypatch.setattr(tuning, "trial_of", turned)
    assert call([*TUNED, "--tune", "lr=0.0001,0.5", "--out", "c"]) == 0
    assert seen[0]["before"]["accuracy_mean"] < 0
    assert json.loads(Path("c/tuning.json").read_text())["chosen"]["fedavg"] == "lr = 0.5"


def test_stopped_while_it_tunes_or_compares_the_bytes_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = [*TUNED, "--tune", "lr=0.01,0.5"]
    assert call([*command, "--out", "whole"]) == 0
    usual, count = running.run_cell, 0

    def blow(*args: Any) -> None:
        nonlocal count
        count += 1
        usual(*args)
        if count in (2, 5):  # in the midst of the tuning, and of the comparison
            raise KeyboardInterrupt

    monkeypatch.setattr(running, "run_cell", blow)
    for _ in range(2):
        with pytest.raises(SystemExit, match="130"):
            call([*command, "--out", "stopped"])
    assert call([*command, "--out", "stopped"]) == 0
    assert bytes_of(Path("stopped")) == bytes_of(Path("whole"))


def test_a_candidate_that_diverges_is_out_and_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*TUNED, "--tune", "lr=0.1,1e30", "--out", "c", "train.momentum=0.9"]
    assert call(words) == 0
    found = Comparison.load("c").tuning
    assert found is not None
    assert found.chosen["fedavg"] == "lr = 0.1"
    assert found.of("fedavg")[-1].mean is None
    assert "1e+30 diverged" in " ".join(found.sentences())
    monkeypatch.setattr(running, "run_cell", lambda *_: pytest.fail("nothing is left to run"))
    assert call(words) == 0


def test_a_tuning_writes_an_experiment_that_can_be_run() -> None:
    words = ["tune", "--method", "fedprox", "lr=0.0001,0.5", "fedprox.mu=0.1", "seed=3", *SMALL]
    assert call([*words, "--tune-seeds", "1", "--out", "t"]) == 0
    config = load("t/tuned.toml")
    assert (config.method, config.seed, config.train.lr) == ("fedprox", 3, 0.5)
    assert config.data.validation_share == 0.2
    told = Tuning.load(Path("t"))
    assert told is not None
    assert told.seeds == (1003,)
    assert call(["run", "t/tuned.toml", "--out", "run", "-q"]) == 0


def test_with_a_budget_the_better_half_is_trained_for_longer() -> None:
    words = ["tune", "--method", "fedavg", "lr=0.0001,0.001,0.1,0.5", *SMALL, "train.rounds=4"]
    assert call([*words, "--tune-seeds", "1", "--budget", "2", "--out", "t"]) == 0
    told = Tuning.load(Path("t"))
    assert told is not None
    lengths = {t.text: t.rounds for t in told.trials}
    assert lengths["lr = 0.0001"] < lengths[told.chosen["fedavg"]]
    assert sum(t.rounds for t in told.trials) <= 2 * 4
