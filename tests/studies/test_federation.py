"""A federation takes the road of every run: records, trackers, page; and never sees any data."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch

from coterie import config as configs
from coterie import trackers
from coterie.cli.main import call
from coterie.cli.progress import numbers
from coterie.config import Config
from coterie.core.errors import ConfigError, QuorumError
from coterie.core.events import Event, silence
from coterie.report import facts, read, verdict
from coterie.report.blocks import BLOCKS
from coterie.report.charts import CHARTS
from coterie.report.page import section
from coterie.runs import newcomers
from coterie.runs.reading import RunReader
from coterie.studies.remote import federation
from coterie.studies.remote.agreement import FILE
from coterie.studies.remote.clients import PartitionClient
from coterie.studies.run import experiment
from coterie.studies.run.result import Result
from tests.engines.flower.fake import FakeClock, FakeGrid

EXPERIMENT = """
method = "fedclust"
seed = 1
[partition]
kind = "rotation:0,180"
clients = 3
[model]
name = "mclr"
[train]
rounds = 2
local_epochs = 1
[fedclust]
clusters = 2
"""


class Server:
    """A server in a folder of its own, with three clients at the far end of a fake grid."""

    def __init__(self, home: Path) -> None:
        (home / "e.toml").write_text(EXPERIMENT)
        self.home, self.file, self.out = home, home / "e.toml", home / "run"
        owners = [PartitionClient(self.file, i) for i in range(3)]
        self.grid = FakeGrid(owners, home / "clients", FakeClock())

    def config(self, **settings: Any) -> Config:
        given = [(key.replace("__", "."), value) for key, value in settings.items()]
        return configs.load(self.file, [("engine.name", "flower"), *given])

    def run(self, listen: Any = silence, *, resume: bool = False, **settings: Any) -> Result:
        config = self.config(**settings)
        return federation.run_federation(self.grid, config, self.out, listen, resume=resume)

    def events(self) -> list[Event]:
        lines = (self.out / "events.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


def tasks(server: Server) -> list[str]:
    """Who was asked to do something."""
    return [name for name, kind in server.grid.sent if ".task" in kind]


def test_a_federation_ends_with_its_page_and_asks_nobody_for_it(server: Server) -> None:
    asked: list[int] = []

    def listen(event: Event) -> None:
        if event["event"] == "done":
            asked.append(len(tasks(server)))

    result = server.run(listen)
    assert result.page == server.out / "report.html"
    page = result.page.read_text()
    assert "every client keeps its data on its own machine" in page
    lead = page.partition('<p class="lead">')[2].partition("</p>")[0]
    assert "own data" in lead
    assert "digits" not in lead, "the file's data are not the clients'"
    assert asked == [len(tasks(server))], "a page costs the clients nothing"


def test_a_federation_has_the_bits_and_the_tables_of_a_run_on_this_machine(server: Server) -> None:
    here = experiment.execute(server.config(engine__name="serial"), server.home / "here")
    there = server.run()
    assert torch.equal(here.state.models, there.state.models)
    assert torch.equal(here.state.assign, there.state.assign)
    accuracies = [
        [row for row in r.history if row.metric in ("accuracy", "loss")] for r in (here, there)
    ]
    assert accuracies[0] == accuracies[1]


class Told:
    """A tracker that remembers the words it heard."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def start(self, facts: Mapping[str, Any], at: int) -> None:
        self.said.append(("start", facts["train.rounds"], at))

    def log(self, at: int, numbers: Mapping[str, float]) -> None:
        self.said.append(("log", at))

    def end(self, whole: bool) -> None:
        self.said.append(("end", whole))


def test_trackers_hear_a_federation(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    monkeypatch.setattr(trackers, "find", lambda name: lambda folder: told)
    server.run(output__trackers=["wandb"])
    rounds = [("log", t) for t in range(3)]
    assert told.said == [("start", 2, 0), *rounds, ("end", True)]


def one_dies(server: Server, **settings: Any) -> Result:
    """A run of three clients, of whom the last is gone after the first round."""

    def listen(event: Event) -> None:
        if event["event"] == "round" and event["round"] == 1:
            server.grid.online.discard(102)

    return server.run(listen, method="fedavg", **settings)


def test_a_mean_says_of_how_many_clients_it_is(server: Server) -> None:
    history = one_dies(server).history
    assert history.series("clients") == {0: 3, 1: 3, 2: 2}
    assert history.series("absent") == {0: 0, 1: 0, 2: 1}
    assert history.series("accuracy_mean")[2] == fmean(history.clients(2).values())
    last = [e for e in server.events() if e["event"] == "round"]
    assert [numbers(e).count(" of 2 clients (1 absent)") for e in last] == [0, 0, 1]


def test_the_page_marks_the_rounds_that_lack_somebody(server: Server) -> None:
    page = one_dies(server).page
    assert page
    run = read(server.out)
    for chart in ("accuracy", "loss", "worst"):
        (ring,) = [t for t in CHARTS[chart](run).figure().data if t.name == "somebody absent"]
        assert list(ring.x) == [2]
        assert ring.text[0] == "mean of 2 of 3 clients, without 2"
    assert "over 2 of 3 clients after 2 rounds" in verdict.sentence(run)
    assert "Not tested after the last round: client 2." in verdict.warnings(run)
    assert not [w for w in verdict.warnings(run) if "No test samples" in w]
    (row,) = [r for r in facts.people(run).rows if r[0].text == "2"]
    assert any(cell.text.endswith(" in round 1") for cell in row)


def test_an_absent_client_can_count_by_its_last_known_value(server: Server) -> None:
    history = one_dies(server, evaluate__absent="last-known").history
    assert "2" not in history.clients(2), "a client's own rows are what was measured"
    known = {**history.clients(1), **history.clients(2)}
    assert history.last_known() == known
    assert history.series("accuracy_mean")[2] == pytest.approx(fmean(known.values()))
    assert history.series("clients")[2] == 3
    assert history.series("absent")[2] == 1
    run = read(server.out)
    assert run.final.mean() == pytest.approx(fmean(known.values()))
    assert "over 3 clients (1 by the last known value)" in verdict.sentence(run)
    changes = [("train.rounds", 3), ("engine.connect_timeout", 1.0)]  # who is gone is not awaited
    config = federation.config_to_resume(server.out, changes, ("engine.connect_timeout",))
    again = federation.run_federation(server.grid, config, server.out, silence, resume=True)
    known |= again.history.clients(3)
    assert again.history.series("accuracy_mean")[3] == pytest.approx(fmean(known.values()))


def test_newcomers_of_a_federation_do_as_those_of_a_simulation(server: Server) -> None:
    result = server.run(newcomers__share=0.3, newcomers__epochs=2)
    assert result.summary["clients"] == 2
    config = server.config(newcomers__share=0.3, newcomers__epochs=2, engine__name="serial")
    meant = newcomers.read(experiment.execute(config, server.home / "here").folder)
    found = newcomers.read(server.out)
    assert meant
    assert found
    unknown = {"group": None, "right": None}  # a server cannot know what was planted
    assert found.rows == tuple(row._replace(**unknown) for row in meant.rows)
    assert {row.newcomer for row in found.rows}.isdisjoint(result.fed.names)
    assert all(row.accuracy is not None for row in found.rows)


def test_a_run_that_goes_on_holds_out_the_same_people(server: Server) -> None:
    server.run(newcomers__share=0.3)
    joined = newcomers.read(server.out)
    trained = {row.client for row in RunReader(server.out).history} - {""}
    changes = [("train.rounds", 3), ("newcomers.share", 0.7), ("seed", 5)]
    config = federation.config_to_resume(server.out, changes, ("newcomers.share", "seed"))
    federation.run_federation(server.grid, config, server.out, silence, resume=True)
    again = newcomers.read(server.out)
    assert joined
    assert again
    assert again.newcomers == joined.newcomers
    assert {row.client for row in RunReader(server.out).history} - {""} == trained


def test_the_newcomers_of_a_federation_are_on_its_page(server: Server) -> None:
    page = server.run(newcomers__share=0.3, newcomers__epochs=1).page
    joined = newcomers.read(server.out)
    assert page
    assert joined
    (table,) = [
        t
        for block in BLOCKS
        if block.key == "newcomers"
        for t in section(read(server.out), block).tables
    ]
    assert [row[0].text for row in table.rows] == joined.newcomers
    assert table.rows[0][3].value == joined.accuracy(0)
    assert table.rows[0][4].value == joined.accuracy(1)
    assert '<section class="block" id="newcomers">' in page.read_text()


def test_newcomers_join_after_the_last_round_only(server: Server) -> None:
    server.run(newcomers__share=0.3)
    joined = newcomers.read(server.out)
    assert joined
    (late,) = {row.newcomer for row in joined.rows}
    with (server.out / "metrics.csv").open() as table:
        trained = {row["client"] for row in csv.DictReader(table)} - {""}
    assert {*trained, late} == {"0", "1", "2"}
    assert late not in trained


def test_a_newcomer_that_is_away_leaves_the_run_whole(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> None:
        raise QuorumError("nobody answered", code="Q001")

    monkeypatch.setattr(federation, "arrive", away)
    result = server.run(newcomers__share=0.3)
    assert result.page == server.out / "report.html"
    warnings = [e["text"] for e in server.events() if e["event"] == "warning"]
    assert warnings == ["no newcomer was placed: nobody answered"]


def test_few_shots_are_not_for_clients_on_other_machines(server: Server) -> None:
    with pytest.raises(ConfigError, match="all their samples") as error:
        server.run(newcomers__share=0.3, newcomers__shots=[1])
    assert error.value.code == "C050"
    assert not server.grid.sent
    assert not server.out.exists()


def test_a_run_whose_newcomers_all_trained_goes_on_with_them(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:  # as versions did that held nobody out
        patch.setattr(federation, "hold_out", lambda agreed, config: agreed)
        server.run(newcomers__share=0.3)
    config = federation.config_to_resume(server.out, [("train.rounds", 3)], ())
    result = federation.run_federation(server.grid, config, server.out, silence, resume=True)
    assert result.summary["clients"] == 3
    warnings = [e["text"] for e in server.events() if e["event"] == "warning"]
    assert warnings[-1] == "newcomers.share: everybody takes part in this run"


def test_a_federation_goes_on_with_the_clients_that_agreed(server: Server) -> None:
    server.run()
    agreed = (server.out / FILE).read_bytes()
    config = federation.config_to_resume(server.out, [("train.rounds", 4)], ())
    assert config.train.rounds == 4
    resumed = federation.run_federation(server.grid, config, server.out, silence, resume=True)
    assert (server.out / FILE).read_bytes() == agreed
    assert "rounds = 4" in (server.out / "run.toml").read_text()
    (server.home / "again").mkdir()
    whole = Server(server.home / "again").run(train__rounds=4)
    assert torch.equal(resumed.state.models, whole.state.models)


def test_only_its_server_goes_on_with_a_federation(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.run()
    assert call(["resume", str(server.out)]) == 2
    said = capsys.readouterr().err
    assert "error[C050]: every client keeps its data on its own machine" in said
    assert f"coterie serve --resume {server.out}" in said


def test_the_page_of_a_federation_can_be_written_again(server: Server) -> None:
    server.run()
    page = (server.out / "report.html").read_bytes()
    (server.out / "report.html").unlink()
    assert call(["report", str(server.out)]) == 0
    assert (server.out / "report.html").read_bytes() == page
