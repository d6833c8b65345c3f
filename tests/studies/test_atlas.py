"""The atlas: its grid, a small part of it that is run and gone on with, and what results say."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from coterie.cli.main import call
from coterie.config import Config
from coterie.core.events import Listener
from coterie.data.kinds import parse
from coterie.studies.atlas import results, running, tables
from coterie.studies.atlas.advice import Advice, learned, said_of
from coterie.studies.atlas.findings import findings, of_kind
from coterie.studies.atlas.grid import FILE, Atlas, Cell, Place
from coterie.studies.atlas.page import markdown, text, write_page
from coterie.studies.atlas.results import Results, Row
from coterie.studies.atlas.running import Asked, experiment, run
from coterie.studies.comparison.cells import run_cell

ATLAS = Atlas.load()
# Whoever changes the grid raises its version and puts the new hash here: results are of a version.
HASHES = {1: "fd3d13a582d6a0ab", 2: "aedc171f6fd04a98", 3: "2c855d2ed3189c1e"}
TINY = (("train.rounds", 2), ("partition.clients", 6))


def numbers() -> str:
    """The grid's file without comments and blank lines, and without the methods' revisions."""
    lines = (line.split("#")[0].strip() for line in FILE.read_text().splitlines())
    kept = [line for line in lines if line and not line.startswith("revision")]
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()[:16]


def test_the_grid_does_not_change_without_its_version() -> None:
    assert HASHES[ATLAS.version] == numbers()


@pytest.mark.parametrize("label", ATLAS.methods)
def test_every_method_has_as_many_candidates(label: str) -> None:
    candidates = ATLAS.contestant(label).candidates(label)
    assert len({c.label for c in candidates}) == ATLAS.candidates


@pytest.mark.parametrize("kind", ATLAS.kinds)
def test_a_kind_is_a_partition_that_every_method_can_be_run_in(kind: str) -> None:
    parse(ATLAS.kinds[kind].partition)
    place = next(p for p in ATLAS.everywhere if p.kind == kind)
    if not Asked(ATLAS, Path(), (place,), ()).at_hand(place):
        pytest.skip(f"{place.data} is not on this machine")
    for label in ATLAS.contestants(place, [*ATLAS.methods]):
        chosen = ATLAS.contestant(label).candidates(label)[-1]
        assert experiment(ATLAS.experiment(place), chosen.label, 11).seed == 11


def test_roles_are_apart() -> None:
    for place in ATLAS.everywhere:
        assert ATLAS.choosing(place) not in ATLAS.seeds(place)
    seeds = [set(role["seeds"]) for role in ATLAS.roles.values()]
    assert not set.intersection(*seeds)
    assert {ATLAS.role(p) for p in ATLAS.places()} == {"development", "evaluation"}


def test_the_first_seed_of_all_places_comes_before_the_second_of_any() -> None:
    cells = ATLAS.cells(ATLAS.places(), ["fedavg", "oracle"], 3)
    turn = [ATLAS.seeds(c.place).index(c.seed) for c in cells]
    assert turn == sorted(turn)
    assert cells[0].place.data == "digits"
    assert all(ATLAS.kinds[c.place.kind].planted for c in cells if c.method == "oracle")


def test_parts_have_every_run_once() -> None:
    places = tuple(p for p in ATLAS.places() if p.data == "digits")
    of = [
        Asked(ATLAS, Path(), places, ("fedavg", "oracle"), 2, part=part).cells()
        for part in ((1, 1), (1, 3), (2, 3), (3, 3))
    ]
    assert sorted(of[0]) == sorted([*of[1], *of[2], *of[3]])


def test_a_run_that_fails_is_told_and_does_not_end_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(config: Config, cell: Any, listen: Listener) -> None:
        if config.method == "fedavg":
            raise RuntimeError("the disk is gone")
        run_cell(config, cell, listen)

    monkeypatch.setattr(running, "run_cell", broken)
    words = ["atlas", "--data", "digits", "--sizes", "30", "--kinds", "none", "--seeds", "1"]
    words += ["--methods", "local,fedavg", "--out", str(tmp_path), "--quiet"]
    assert call([*words, "train.rounds=1", "partition.clients=4"]) == 1
    said = capsys.readouterr().err
    assert "failed  none · digits · 30 · fedavg · seed 11: RuntimeError: the disk is gone" in said
    assert "tries what failed again" in said
    done = results.read((tmp_path / "results.csv").read_text())
    assert [row.method for row in done if row.stage == "result"] == ["local"]


def test_a_method_that_is_not_there_is_said_before_anything_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["atlas", "--method", "nowhere:Mine", "--out", str(tmp_path / "out")]) == 2
    assert "nowhere" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def asked(out: Path, *methods: str, **more: object) -> Asked:
    places = (Place("none", "digits", 30), Place("rotation", "digits", 30))
    return Asked(ATLAS, out, places, methods or ("fedavg",), 1, given=TINY, **more)  # type: ignore[arg-type]


def test_what_is_known_is_not_run_again_on_another_machine(tmp_path: Path) -> None:
    first = run(asked(tmp_path / "a", part=(1, 2)))
    assert {row.kind for row in first.of("result")} == {"none"}
    assert not (tmp_path / "a" / "work-1of2" / "run").exists()
    told: list[dict[str, object]] = []
    known = tmp_path / "a" / "results-1of2.csv"
    both = run(asked(tmp_path / "b", results=(known,)), told.append)
    assert told[0] == {"event": "atlas", "cells": 1, "known": 1}
    assert len(list(both.of("result"))) == 2
    again = results.read((tmp_path / "b" / "results.csv").read_text())
    assert {row.kind for row in again} == {"rotation"}
    row = both.result(Cell(Place("rotation", "digits", 30), "fedavg", 11))
    assert row is not None
    assert len(row.scores) == 6
    assert row.accuracy == pytest.approx(sum(row.scores) / 6, abs=1e-3)
    assert row.settings.startswith("fedavg:train.lr=")
    assert row.cut == "train.rounds = 2; partition.clients = 6"


def test_results_of_another_version_revision_or_cut_do_not_count() -> None:
    good = made("fedavg", 11, 0.5)
    found = Results(ATLAS)
    others = ({"version": 99}, {"revision": 99}, {"cut": "train.rounds = 2"})
    found.add([good._replace(**other) for other in others])
    assert not found.rows
    found.add([good])
    assert len(found.rows) == 1


def made(method: str, seed: int, accuracy: float) -> Row:
    return Row(
        "result",
        "development",
        "none",
        "digits",
        30,
        method,
        seed,
        method,
        accuracy,
        scores=tuple(accuracy + 0.001 * i for i in range(10)),
        up=1e6 * (2 if method == "ifca" else 1),
        down=1e6,
        samples=100.0,
        population="same",
        version=ATLAS.version,
        revision=ATLAS.contestant(method).revision,
    )


def grid_of(values: dict[str, float], runs: int = 8) -> Results:
    found = Results(ATLAS)
    found.add(made(m, 11 + i, v + 0.002 * (i % 3)) for m, v in values.items() for i in range(runs))
    return found


def test_who_is_best_level_and_below_follows_from_the_runs() -> None:
    (found,) = findings(grid_of({"fedavg": 0.7, "local": 0.6, "ifca": 0.9, "kin": 0.9}))
    assert found.level == ["ifca", "kin"]
    below = {s.method: s.below for s in found.standings}
    assert below == {"ifca": (), "kin": (), "fedavg": (), "local": ("fedavg",)}
    cost = {s.method: s.bytes for s in found.standings}
    assert cost["ifca"] == pytest.approx(1.5)
    assert found.over == "runs"
    assert found.advice.startswith(
        "Take ifca: 90.2 %, 20.0 points above FedAvg. Level with it: kin"
    )
    assert "Clearly below FedAvg: local." in found.advice


def test_where_nothing_is_better_fedavg_is_enough() -> None:
    (found,) = findings(grid_of({"fedavg": 0.9, "local": 0.6, "kin": 0.9}))
    assert found.advice.startswith("FedAvg is enough, nothing is clearly better.")


def test_a_gain_that_is_not_clear_is_not_told_as_none() -> None:
    found = grid_of({"fedavg": 0.9, "local": 0.6}, runs=1)
    two = made("kin", 11, 0.9)
    found.add([two._replace(accuracy=0.93, scores=(1.2, *two.scores[1:]))])  # one client gains
    (seen,) = findings(found)
    assert "Nothing is clearly better than FedAvg; the best, kin, has 3.0 points" in seen.advice


def test_few_runs_are_tested_over_clients_and_said_to_be_few() -> None:
    (found,) = findings(grid_of({"fedavg": 0.9, "local": 0.6}, runs=2))
    assert found.over == "clients"
    assert found.advice.startswith("From 2 runs only, tested over their clients.")


def test_runs_that_no_adjusted_test_could_tell_apart_are_tested_over_clients() -> None:
    names = [m for m in ATLAS.methods if m not in ("kin", "oracle")]
    values = dict.fromkeys(names, 0.6) | {"kin": 0.9}
    (few,), (many,) = (findings(grid_of(values, runs=n)) for n in (9, 10))
    assert (len(values), few.over, many.over) == (15, "clients", "runs")
    assert few.level == many.level == ["kin"]


def test_who_had_other_clients_or_few_runs_is_not_compared() -> None:
    found = grid_of({"fedavg": 0.7, "local": 0.6})
    found.add([made("kin", 11, 0.99)])
    found.add([made("ifca", 11 + i, 0.99)._replace(population="other") for i in range(8)])
    seen = of_kind(found, "none")
    assert seen is not None
    assert [s.method for s in seen.standings] == ["fedavg", "local"]
    assert seen.sparse == {"kin": 1}


def test_one_method_with_more_runs_than_all_others_does_not_put_them_aside() -> None:
    found = grid_of({"fedavg": 0.7, "local": 0.6}, runs=1)
    found.add([made("kin", 11 + i, 0.8) for i in range(3)])
    seen = of_kind(found, "none")
    assert seen is not None
    assert {s.method for s in seen.standings} == {"fedavg", "local", "kin"}
    assert (seen.runs, seen.sparse) == (1, {})


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--kinds", "rotations"], "rotation"),
        (["--data", "imagenet"], "one of digits"),
        (["--methods", "fedavgg"], "fedavg"),
        (["--part", "3/2"], "1/2"),
        (["--role", "test"], "one of development"),
    ],
)
def test_what_the_atlas_does_not_have_is_said_at_once(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["atlas", *words]) == 2
    assert told in capsys.readouterr().err


def test_rows_come_back_from_their_csv() -> None:
    row = made("ifca", 11, 0.5)._replace(note="lr = 0.1: 50.0", recovered=3.0)
    (again,) = results.read(results.written([row]))
    assert again == row


def test_the_page_and_the_tables_tell_every_kind(tmp_path: Path) -> None:
    found = grid_of({"fedavg": 0.7, "local": 0.6, "ifca": 0.9, "kin": 0.9})
    page = write_page(found, tmp_path / "report.html", "coterie atlas").read_text()
    assert "Take ifca: 90.2 %" in page
    assert "Points behind the best" in page
    assert "No results yet: quantity, " in page
    for said in (text(found), markdown(found)):
        assert "how safe each is, place by place (development)" in said
        assert "20.0" in said
    assert "too few" in text(Results(ATLAS))


def test_how_safe_a_method_is_counts_places_and_its_largest_loss() -> None:
    found = grid_of({"fedavg": 0.7, "local": 0.6, "ifca": 0.9})
    table = tables.safety(found, findings(found))
    rows = {row[0]: row[1:3] for row in table.rows}
    assert rows == {"ifca": ("1/1", "+0.0"), "fedavg": ("0/1", "n/a"), "local": ("0/1", "-10.0")}


def test_advice_comes_back_from_its_file_and_is_the_results_own(tmp_path: Path) -> None:
    found = grid_of({"fedavg": 0.7, "local": 0.6, "ifca": 0.9, "kin": 0.9})
    found.add(seen_in("none", 11, 0.0))
    made = learned(found)
    made.save(tmp_path / "advice.json")
    again = Advice.load(tmp_path / "advice.json")
    assert again == made
    assert again.lessons["none"].level == ("ifca", "kin")
    assert again.lessons["none"].text == findings(found)[0].advice
    assert said_of("local", again).endswith(
        "in 0 of 1 place, at most 10.0 points below FedAvg, tuned or not"
    )
    assert said_of("ditto", again) == "the atlas has no results of it yet"
    assert Advice.load(tmp_path / "nothing.json") is None


def seen_in(kind: str, seed: int, labels: float, data: str = "digits") -> list[Row]:
    note = f"labels={labels:.3f} sizes=0.000"
    row = made("", seed, 0.0)._replace(kind=kind, stage="signs", data=data, note=note, revision=0)
    return [row]


def test_the_advice_of_the_package_is_that_of_the_results_in_the_docs() -> None:
    file = Path(__file__).parents[2] / "docs" / "results" / "atlas.csv"
    found = Results(ATLAS)
    found.read([file] if file.exists() else [])
    shipped = Advice.load()
    assert (shipped is not None) == bool(found.rows), "no advice without results"
    if shipped:
        made = learned(found)
        assert (shipped.lessons, shipped.sights) == (made.lessons, made.sights)


def test_results_of_several_parts_become_one_file(tmp_path: Path) -> None:
    found = grid_of({"local": 0.6, "fedavg": 0.7}, runs=2)
    found.add(seen_in("none", 11, 0.5))
    found.save(tmp_path / "all.csv")
    again = results.read((tmp_path / "all.csv").read_text())
    assert [(r.stage, r.seed, r.method) for r in again] == [
        ("result", 11, "local"),
        ("result", 11, "fedavg"),
        ("result", 12, "local"),
        ("result", 12, "fedavg"),
        ("signs", 11, ""),
    ]


def test_clients_are_read_as_the_kind_whose_signs_are_nearest() -> None:
    found = Results(ATLAS)
    for i, data in enumerate(("digits", "mnist", "svhn")):
        found.add(seen_in("none", 11 + i, 0.01 * i, data))
        found.add(seen_in("label-groups", 11 + i, 0.9 + 0.01 * i, data))
    advice = learned(found)
    read = advice.read({"labels": 0.85, "sizes": 0.0})
    assert read is not None
    assert (read.kind, read.right, read.of) == ("label-groups", 3, 3)
    assert read.far, "places are within 0.02 of one another"
    assert not read.sure
    near = advice.read({"labels": 0.005, "sizes": 0.0})
    assert near is not None
    assert (near.kind, near.far, near.sure) == ("none", False, True)
    assert near.text == (
        "most like 'none', as 3 of the 3 nearest cases are; of its own cases that were read so, "
        "3 of 3 were"
    )
    assert learned(Results(ATLAS)).read({}) is None


def test_a_method_of_ones_own_joins_with_as_many_candidates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "from coterie.methods.fedavg import FedAvg\n\nclass Mine(FedAvg):\n    pass\n"
    (tmp_path / "mine_atlas.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    label = "mine_atlas:Mine"
    assert len(ATLAS.contestant(label).candidates(label)) == ATLAS.candidates
    assert ATLAS.contestant(label).tune == ATLAS.methods["fedavg"].tune
    place = Place("none", "digits", 30)
    given = (*TINY, ("train.rounds", 1), ("engine.name", "serial"))
    one = Asked(ATLAS, tmp_path / "out", (place,), ("fedavg", label), 1, given=given)
    (run_,) = run(one).at("none").values()
    assert run_[label].scores == run_["fedavg"].scores, "it does what FedAvg does"
    assert run_[label].settings.startswith("mine_atlas:Mine:train.lr=")


def test_the_list_says_what_would_be_run_and_runs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", "digits", "--kinds", "rotation", "--methods", "cfl,oracle", "--list"]
    assert call(["atlas", *words, "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "digits 30, digits 70" in said
    assert "12 runs, of which 12 are not known yet" in said
    assert not (tmp_path / "out").exists()


def test_a_run_without_a_method_says_what_is_taken_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "--data", "digits", "--clients", "4", "--model", "mclr", "--rounds", "1"]
    assert call([*words, "--no-report", "--out", str(tmp_path / "a")]) == 0
    told = capsys.readouterr().err
    assert f"kin, as none is named; {said_of('kin', Advice.load())}" in told
    assert "coterie inspect digits" in told
    assert call([*words, "--no-report", "--method", "local", "--out", str(tmp_path / "b")]) == 0
    assert "none is named" not in capsys.readouterr().err
