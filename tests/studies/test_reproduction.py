"""The papers' tables: their files, their numbers, and a small one that is run and gone on with."""

from __future__ import annotations

import shutil
from dataclasses import replace
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from coterie.cli.main import call
from coterie.core.errors import CheckpointError, ConfigError
from coterie.core.events import Event
from coterie.runs.comparison import Comparison
from coterie.runs.history import History, Row
from coterie.runs.reading import Clusters
from coterie.studies.reproduction import claims, joining, measures, results, running
from coterie.studies.reproduction.measures import MEASURES
from coterie.studies.reproduction.page import write_page
from coterie.studies.reproduction.papers import TABLES
from coterie.studies.reproduction.table import Key, Setting, Table

RUNNABLE = [t for t in TABLES.values() if t.experiment]
TINY = [
    ("data.source", "digits"),
    ("data.pool", "train"),
    ("partition.clients", 6),
    ("train.rounds", 2),
    ("engine.name", "serial"),
]


def test_every_table_of_the_five_papers_is_there() -> None:
    assert sum(len(t.figures) for t in TABLES.values()) == 1083
    assert len([t for t in TABLES.values() if t.figures]) == 24, "and pictures, without numbers"


@pytest.mark.parametrize("table", RUNNABLE, ids=lambda t: t.name)
def test_a_table_names_what_there_is(table: Table) -> None:
    assert {*table.measures.values(), *dict(table.also.values()).values()} <= {*MEASURES}
    assert {f.method for f in table.figures} <= {*table.methods}
    said = {*(s.dataset for s in table.settings), *table.absent}
    assert {f.dataset for f in table.figures} <= said, "each data set is run, or said why not"
    asked = running.ask(table.name, "nowhere")
    for setting in table.settings:
        made = running.experiments(asked, setting)
        assert {*table.labels} <= {*made.experiments}


@pytest.mark.parametrize("table", RUNNABLE, ids=lambda t: t.name)
def test_the_claims_of_a_paper_can_be_checked_on_its_own_numbers(table: Table) -> None:
    own = {Key(*f[:4]): inf if f.value is None else f.value for f in table.figures}
    also = {
        Key(f.method, f.dataset, f.setting, table.also[f.metric][0]): f.value
        for f in table.figures
        if f.metric in table.also and f.value is not None
    }
    if not table.figures:
        pytest.skip("a picture: the paper prints no number of it")
    found = [claim.check({**own, **also}) for claim in table.claims]
    assert all(verdict != "not tested" for verdict, _ in found)


def asked(out: Path, *methods: str, seeds: int = 1) -> running.Asked:
    some = methods or ("FedAvg", "fedds")
    return running.ask("feddsmic-2", out, ("mnist",), some, seeds, TINY, ("alpha=1",))


def test_a_table_is_run_gone_on_with_and_widened(tmp_path: Path) -> None:
    heard: list[Event] = []
    running.run(asked(tmp_path, "FedAvg"), heard.append)
    assert [e["cells"] for e in heard if e["event"] == "comparison"] == [1], (
        "FedDS is not asked for"
    )
    first = results.Reproduction(asked(tmp_path, "FedAvg"))
    assert len(first.measured) == 2, "two metrics in one setting"
    shutil.rmtree(first.asked.folder / "mnist_alpha=1.0" / "fedavg-seed0" / "checkpoints")
    running.run(asked(tmp_path, seeds=2))  # FedDS joins, and a second seed; what is done stays
    found = results.Reproduction(asked(tmp_path, seeds=2))
    rows = {(r.method, r.metric): r for r in found.rows}
    assert {m for m, _ in rows} == {"FedAvg", "FedDS"}
    assert all(r.seeds == "0 1" and r.std is not None for r in found.rows)
    assert "train.rounds = 2" in found.rows[0].cuts
    assert results.read(results.written(found.rows))[0].key == found.rows[0].key
    cells = Comparison.load(found.asked.folder / "mnist_alpha=1.0").of("fedavg")
    own = [100 * c.numbers["accuracy_weighted_top_5"] for c in cells]
    row = rows["FedAvg", "accuracy_percent_top5_mean"]
    assert row.measured == pytest.approx(np.mean(own))
    assert row.difference == pytest.approx(np.mean(own) - 90.4)
    page = write_page(found).read_text()
    assert "What the paper claims of it" in page
    assert f"cd {Path.cwd()}\ncoterie reproduce feddsmic-2 --dataset mnist --seeds 2" in page
    assert "Other than in the paper: " in page


def test_a_part_of_a_name_chooses_settings_and_one_of_none_is_refused() -> None:
    def names(*parts: str) -> list[str]:
        found = running.ask("dapfl-1", "nowhere", named=parts)
        return [setting.name for setting in found.settings]

    assert names("100 Clients") == ["100 clients;alpha=1", "100 clients;alpha=0.5"]
    assert names("20 clients;alpha=0.5", "100 clients;alpha=1") == names()[1:3], (
        "a whole name is that one, though another ends in it"
    )
    with pytest.raises(ConfigError, match="no setting 'alpha=7'") as refused:
        names("alpha=0.5", "alpha=7")
    assert "100 clients;alpha=0.5" in str(refused.value)


def test_runs_tested_in_other_rounds_or_untuned_leave_open_what_rests_on_it(tmp_path: Path) -> None:
    def found(name: str, *given: tuple[str, Any]) -> set[str]:
        few = [*TINY, ("data.test", "own"), ("model.name", "mlp"), *given]
        one = running.ask(name, tmp_path, ("fashion-mnist",), ("FedAvg",), 1, few, ("30%",))
        running.run(one)
        assert joining.wanted(one, ())(one.settings[0]) == ["fedavg:train.momentum=0.9"] * bool(
            [m for m in one.table.named if one.tells(m)]
        ), "nothing is run for what it could not tell"
        return {row.metric for row in results.Reproduction(one).rows if row.there}

    accuracy, tuned = "accuracy_percent", "accuracy_percent after 10 local epochs"
    assert found("fedclust-2") == {accuracy, tuned}
    assert found("fedclust-2", ("evaluate.every", 2)) == {accuracy, tuned}
    assert found("fedclust-2", ("evaluate.tuned", 0)) == {accuracy}
    assert found("fedclust-5") == {"comm_megabits_per_client"}, "a target that was not reached"
    assert found("fedclust-5", ("evaluate.every", 2)) == set()


def test_a_table_cut_in_many_ways_has_a_folder_of_its_own_whose_name_a_disk_takes() -> None:
    def folder(rounds: int) -> Path:
        many = {f"train.{name}": 1 for name in "abcdefghijklmnopqrstuvwxyz"}
        given = [("train.rounds", rounds), *((f"{k}_of_many", v) for k, v in many.items())]
        return running.ask("feddsmic-2", "out", given=given).folder

    assert len(folder(2).name) < 200
    assert folder(2) == folder(2) != folder(3)


def test_what_other_machines_measured_is_kept_and_not_run_again(tmp_path: Path) -> None:
    here, kept = tmp_path / "here", tmp_path / "results"
    running.run(asked(here, "FedAvg"))
    assert [f.name for f in joining.join(asked(here, "FedAvg"), kept)] == ["feddsmic-2.csv"]
    there = asked(tmp_path / "there")  # another machine: no run is there, FedDS is asked for too
    before = joining.known(kept, there.table)
    assert joining.wanted(there, before)(there.settings[0]) == ["fedds"]
    running.run(there, wanted=joining.wanted(there, before))
    assert not (there.folder / "mnist_alpha=1.0" / "fedavg-seed0").exists()
    found = results.Reproduction(there, before)
    assert all(row.measured is not None for row in found.rows)
    joining.join(there, kept)
    both = joining.known(kept, there.table)
    assert [r.key for r in both] == [r.key for r in found.rows]
    assert {r for r in both if r.label == "fedavg"} == {*before}, "each keeps its own command"


@pytest.mark.parametrize(
    ("change", "right"),
    [
        ({}, True),
        ({"fingerprint": ""}, True),
        ({"fingerprint": "other"}, False),
        ({"version": "9.9.9"}, False),
        ({"seeds": "1"}, False),
        ({"cuts": "train.rounds = 3"}, False),
    ],
)
def test_an_older_number_counts_if_it_is_of_the_same_settings(
    change: dict[str, str], right: bool
) -> None:
    full = running.ask("feddsmic-3", "nowhere")
    row = results.Reproduction(full).rows[0]._replace(**{"measured": 90.0, "seeds": "0"} | change)
    assert joining.counts(row, full, full.settings[0]) is right


def test_a_number_cut_short_or_of_fewer_seeds_never_replaces_a_better_one() -> None:
    full = running.ask("feddsmic-3", "nowhere")
    whole = results.Reproduction(full).rows[0]._replace(measured=90.0)
    short = whole._replace(measured=80.0, cuts="train.rounds = 3")
    newer = whole._replace(measured=91.0)
    assert joining.joined(full.table, [whole], [short]) == [whole]
    assert joining.joined(full.table, [short], [whole]) == [whole]
    assert joining.joined(full.table, [whole], [newer]) == [newer]
    three = whole._replace(seeds="0 1 2")
    assert joining.joined(full.table, [three], [newer._replace(seeds="0")]) == [three]
    assert joining.joined(full.table, [newer._replace(seeds="0")], [three]) == [three]


def test_a_fingerprint_is_of_what_a_method_is_told_and_of_nothing_else() -> None:
    full = running.ask("fedclust-1", "nowhere")
    one = full.settings[0]
    told = running.fingerprint(full, one, "ifca")
    assert told != running.fingerprint(full, one, "pacfl")
    assert told != running.fingerprint(full, one, "ifca:clusters=3")
    other = replace(full, given=(("engine.name", "serial"), ("pacfl.p", 5)))
    assert told == running.fingerprint(other, one, "ifca")
    shorter = replace(full, given=(("train.rounds", 5),))
    assert told != running.fingerprint(shorter, one, "ifca")


def test_other_settings_in_the_same_folder_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    folder.mkdir()
    made = running.experiments(asked(tmp_path), asked(tmp_path).settings[0]).asked()
    from coterie.config import toml

    (folder / "compare.toml").write_text(toml.write(made))
    assert running.widened(folder, made)["seeds"] == [0]
    more = {**made, "methods": [*made["methods"], "kin:rise=5"]}
    more["experiments"] = {**made["experiments"], "kin:rise=5": made["experiments"]["fedavg"]}
    wide = running.widened(folder, more)  # the file lists one more by now
    assert wide["methods"] == more["methods"]
    assert [*wide["experiments"]] == [*more["experiments"]]
    assert running.widened(folder, made)["methods"] == more["methods"], "and then one less"
    made["experiments"]["fedavg"]["train"]["lr"] = 0.5
    with pytest.raises(CheckpointError, match="other settings"):
        running.widened(folder, made)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["fedclust-9"], "fedclust-"),
        (["feddsmic-1"], "is not run"),
        (["feddsmic-2", "--methods", "FedNope"], "has no method"),
        (["feddsmic-2", "--dataset", "emnist"], "one of fashion-mnist, mnist"),
    ],
)
def test_what_cannot_be_run_is_said_at_once(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["reproduce", *words]) == 2
    assert told in capsys.readouterr().err


def test_the_list_and_a_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["reproduce"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in TABLES)
    assert call(["reproduce", "cflgt-1", "--copy", str(tmp_path / "my.toml")]) == 0
    assert "everybody = 25" in (tmp_path / "my.toml").read_text()
    with pytest.raises(ConfigError):
        running.find("nothing")


@pytest.mark.slow
def test_what_a_paper_leaves_open_is_chosen_on_validation_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["reproduce", "feddsmic-3", "--methods", "FedDSMIC", "--tune", "feddsmic.eta=0.01,0.1"]
    words += [f"{k}={v}" for k, v in TINY] + ["newcomers.share=0", "--out", str(tmp_path), "-q"]
    assert call(words) == 0
    said = capsys.readouterr()
    assert "validation" in said.out
    assert "coterie reproduce feddsmic-3 feddsmic.eta=" in said.err
    (record,) = tmp_path.rglob("tuning.json")
    assert record.parent.parent.name == "tuning"
    assert not list(tmp_path.rglob("feddsmic-seed0")), "nothing is measured by it"


def test_what_is_not_measured_is_a_dash_and_nothing_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["reproduce", "feddsmic-3", "--no-run", "--methods", "FedAvg", "--out", str(tmp_path)]
    assert call(words) == 0
    assert "FedAvg  90.92         –" in capsys.readouterr().out
    assert [p.name for p in (tmp_path / "feddsmic-2").iterdir() if p.is_dir()] == []


def test_a_claim_holds_when_all_its_numbers_are_there_and_falls_by_the_first_against_it() -> None:
    best = claims.best("A", ["A", "B", "C"], "m")
    some = {Key("A", "d", "s", "m"): 2.0}
    behind, ahead = {Key("B", "d", "s", "m"): 1.0}, {Key("C", "d", "s", "m"): 3.0}
    assert best(some)[0] == best(ahead)[0] == best(some | behind)[0] == "not tested"
    assert best(some | behind | {Key("C", "d", "s", "m"): 0.0})[0] == "holds"
    no = ("does not hold", "in 0 of 1 setting measured: d s: 2.00 against C 3.00")
    assert best(some | ahead) == best(some | ahead | behind) == no
    fast = claims.at_most("A", "m", 5)
    assert claims.every(best, fast)(some)[0] == "not tested"
    assert claims.every(best, fast)(some | ahead)[0] == "does not hold"
    assert claims.every(fast, fast)(some)[0] == "holds"


def test_clusters_are_settled_after_the_last_change_whatever_they_are_called() -> None:
    assign = np.array([[0, 0, 0], [0, 1, 1], [0, 0, 1], [3, 3, 2]])
    found = Clusters(("a", "b", "c"), np.arange(4), assign, None)
    assert found.settled == 2
    assert Clusters(("a", "b", "c"), np.arange(1), assign[:1], None).settled == 0


def test_members_of_a_group_count_in_the_cluster_that_stands_for_it() -> None:
    group, assign = np.array([[0, 0, 1, 1, 1]]), np.array([[4, 4, 4, 7, 7]])
    cell: Any = SimpleNamespace(
        clusters=Clusters(("a", "b", "c", "d", "e"), np.arange(1), assign, group)
    )
    assert [MEASURES[f"members_{i}"](cell, "") for i in (1, 2, 3)] == [2, 2, 0]


def test_clients_of_the_nearest_size_stand_for_those_of_the_paper() -> None:
    sizes = {"a": 150.0, "b": 150.0, "c": 900.0}
    cell: Any = SimpleNamespace(facts={"sizes": sizes}, accuracy={"a": 0.5, "b": 0.7, "c": 0.9})
    assert measures.of_size(cell, "x;client column 1 with 100 samples") == pytest.approx(60)
    assert measures.of_size(cell, "x;client column 3 with 700 samples") == pytest.approx(90)


def test_own_networks_reach_a_target_as_soon_as_enough_clients_were_drawn() -> None:
    rows = [Row(0, c, "", "before", "accuracy", 0.0) for c in "abcd"]
    rows += [Row(t, c, "", "traffic", "bytes_up", 8.0) for t, c in ((1, "a"), (2, "a"), (3, "b"))]
    rows += [Row(5, "c", "", "traffic", "bytes_up", 8.0)]
    rows += [Row(5, c, "", "tuned", "accuracy", 1.0) for c in "abcd"]
    cell: Any = SimpleNamespace(history=History(rows), stage="before", summary={"rounds": 5})
    wanted = [measures.rounds_drawn_to_target(cell, f"x;target {t}%") for t in (25, 50, 75, 80)]
    assert wanted == [1, 3, 5, None]


def test_shots_are_those_that_the_setting_names() -> None:
    cell: Any = SimpleNamespace(summary={"by_shots": {"few": 0.25, "many": 0.5}})
    named = ["Few (<30)", "Medium (30-80)", "Many (>80)"]
    assert [measures.by_shots(cell, f"20 clients;{n}") for n in named] == [25, None, 50]


def test_a_setting_has_the_figures_that_begin_with_its_name() -> None:
    one = Setting("FMNIST", "label skew 20%", "fashion-mnist")
    (some,) = {f.setting for f in TABLES["fedclust-4"].figures if one.has(f)}
    assert measures.target_of(some) == 0.75
    assert not any(one.has(f) for f in TABLES["fedclust-2"].figures)
