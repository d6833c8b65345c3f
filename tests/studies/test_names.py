"""Owners' names go from the data into every record, chart and page; whatever they hold is text."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import coterie as ct
from coterie import config as configs
from coterie.cli import main
from coterie.report import read
from coterie.report.charts import CHARTS
from coterie.report.page import run_page
from coterie.runs import newcomers
from coterie.runs.history import HEADER, Row, from_csv, to_csv
from coterie.runs.reading import RunReader

HOSPITALS = ("Berlin", "Bern", "Oslo", "Rome", "Wien")
NASTY = (
    "<img src=x onerror=alert(1)>",
    "=cmd|' /C calc'!A0",
    "@SUM(1)",
    'a,"b"',
    "'s Hertogenbosch",
)
SETTINGS = ["model.name=mclr", "train.rounds=2", "engine.name=serial"]


def table(file: Path, owners: tuple[str, ...], rows: int = 150) -> Path:
    """Rows of two features, an owner and a label; half of the owners name the labels otherwise."""
    rng = np.random.default_rng(0)
    with file.open("w", newline="") as out:
        lines = csv.writer(out)
        lines.writerow(["hospital", "a", "b", "label"])
        for i in range(rows):
            y = int(rng.integers(2))
            turned = y ^ (i % len(owners) % 2)
            lines.writerow([owners[i % len(owners)], y + rng.normal(), rng.normal(), turned])
    return file


def call(*words: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["coterie", *words])
        with pytest.raises(SystemExit) as end:
            main()
    return int(end.value.code or 0)


def run(place: Path, owners: tuple[str, ...]) -> Path:
    data = table(place / "patients.csv", owners)
    words = ["data.owner=hospital", "method=fedclust", "newcomers.share=0.2", *SETTINGS]
    assert call("run", f"data.source={data}", *words, f"--out={place / 'run'}") == 0
    return place / "run"


@pytest.fixture(scope="module", params=[HOSPITALS, NASTY], ids=["cities", "nasty"])
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, set[str]]:
    folder = run(tmp_path_factory.mktemp("names"), request.param)
    return folder, set(request.param)


def test_every_record_has_them(made: tuple[Path, set[str]]) -> None:
    folder, owners = made
    joined = newcomers.read(folder)
    assert joined is not None
    late = set(joined.newcomers)
    assert late < owners
    assert {row.client for row in RunReader(folder).history if row.client} == owners - late
    assert set(RunReader(folder).clusters.names) == owners - late


def test_the_result_has_them(made: tuple[Path, set[str]]) -> None:
    folder, owners = made
    result = ct.open_run(folder)
    name = result.population.names[0]
    assert name in owners
    assert set(result.clusters) == set(result.accuracy.values) <= owners
    client = result.population[0]
    right = result.model(name)(client.x_test).argmax(1) == client.y_test
    assert float(right.double().mean()) == pytest.approx(result.accuracy[name])


def test_the_page_and_every_chart_have_them_as_text(made: tuple[Path, set[str]]) -> None:
    folder, _ = made
    data = read(folder)
    page = run_page(data)
    assert "<img src=x" not in page
    for name in data.clients:
        assert name.replace("<", "&lt;").replace(">", "&gt;").split(",")[0][:20] in page.replace(
            "&#39;", "'"
        )
    drawn = json.dumps(
        [CHARTS[c](data).figure().to_plotly_json() for c in ("distances", "uploads")], default=str
    )
    assert "<img" not in drawn


def test_no_cell_of_a_csv_is_a_formula(made: tuple[Path, set[str]]) -> None:
    folder, _ = made
    for file in folder.glob("*.csv"):
        for row in csv.reader(file.read_text().splitlines()):
            for cell in row:
                numeric = cell.replace(".", "").replace("-", "").replace("e", "").isdigit()
                assert numeric or cell[:1] not in ("=", "+", "-", "@"), (file, cell)


def test_a_history_reads_back_what_was_written() -> None:
    rows = [Row(1, name, "0", "before", "accuracy", -0.5) for name in (*NASTY, "-5", "+x")]
    assert from_csv(HEADER + to_csv(rows)).rows == rows


def test_natural_is_the_partition_where_an_owner_is_named(tmp_path: Path) -> None:
    data = table(tmp_path / "p.csv", HOSPITALS)
    given = [("data.source", str(data)), ("data.owner", "hospital")]
    assert configs.load(None, given).partition.kind == "natural"
    assert configs.load(None, [*given, ("partition.kind", "iid")]).partition.kind == "iid"
    people = ct.partition(ct.load(data, owner="hospital"), "natural", clients=None)
    assert people.names == HOSPITALS
    assert ct.partition(ct.load(data, owner="hospital"), "natural", clients=2).names[0] in HOSPITALS


def test_a_partition_that_divides_anew_says_that_owners_are_not_its_clients(tmp_path: Path) -> None:
    data = ct.load(table(tmp_path / "p.csv", HOSPITALS), owner="hospital")
    people = ct.partition(data, "iid", clients=3)
    assert people.names == ("0", "1", "2")
    assert any("5 owners in the data are not the clients" in note for note in people.notes)


def test_another_name_is_another_client(tmp_path: Path) -> None:
    first = ct.load(table(tmp_path / "p.csv", HOSPITALS), owner="hospital", name="p")
    other = ct.load(table(tmp_path / "q.csv", (*HOSPITALS[:4], "Zug")), owner="hospital", name="p")
    assert first.fingerprint != other.fingerprint


def test_newcomers_come_by_name(
    made: tuple[Path, set[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = made
    data = table(tmp_path / "late.csv", ("Zug", "Graz"), rows=40)
    assert call("place", str(folder), f"--data={data}", "owner=hospital", "--json") == 0
    told = [json.loads(line)["newcomer"] for line in capsys.readouterr().out.splitlines()]
    assert told == ["Graz", "Zug"]


def test_who_comes_again_is_not_taken_for_who_is_there(
    made: tuple[Path, set[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, owners = made
    data = table(tmp_path / "again.csv", tuple(sorted(owners)), rows=60)
    assert call("place", str(folder), f"--data={data}", "owner=hospital", "--json") == 0
    told = {json.loads(line)["newcomer"] for line in capsys.readouterr().out.splitlines()}
    there = set(ct.open_run(folder).fed.names)  # one was held out of the training
    assert there < owners
    assert told == {f"newcomer-{name}" if name in there else name for name in owners}


def test_inspection_and_data_name_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = table(tmp_path / "p.csv", HOSPITALS, rows=300)
    assert call("data", str(data), "owner=hospital") == 0
    assert "5 owners: Berlin, Bern, Oslo, Rome, Wien" in capsys.readouterr().out
    words = ["data.owner=hospital", "model.name=mclr", "--json"]
    assert call("inspect", str(data), *words) == 0
    assert json.loads(capsys.readouterr().out)["clients"] == list(HOSPITALS)


def test_folders_of_owners_are_clients_by_name(tmp_path: Path) -> None:
    for part, count in (("train", 4), ("test", 2)):
        for owner in ("Lyon", "Pisa"):
            for label, value in (("cat", 40), ("dog", 200)):
                home = tmp_path / "photos" / part / owner / label
                home.mkdir(parents=True)
                for i in range(count):
                    Image.new("L", (8, 8), value + i).save(home / f"{i}.png")
    data = ct.load(tmp_path / "photos", owner="folder")
    assert (data.owners, data.classes, data.shape) == (("Lyon", "Pisa"), ("cat", "dog"), (1, 8, 8))
    assert data.owner is not None
    assert data.owner_test is not None
    assert (len(data.owner), data.owner_test.tolist()) == (16, [0] * 4 + [1] * 4)
    assert ct.partition(data, "natural", clients=None).names == ("Lyon", "Pisa")
