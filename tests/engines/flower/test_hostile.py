"""One client of a federation that lies: it is left out or counts for little, and is named."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, RecordDict

from coterie import config as configs
from coterie.core.events import Event, silence
from coterie.engines.flower.exchange import RemoteClient
from coterie.studies.remote import federation
from coterie.studies.remote.agreement import agree
from coterie.studies.remote.clients import PartitionClient
from coterie.studies.run.result import Result
from tests.engines.flower.fake import FakeClock, FakeGrid

EXPERIMENT = """
method = "fedavg"
seed = 1
[partition]
kind = "iid"
clients = 4
[model]
name = "mclr"
[train]
rounds = 3
local_epochs = 2
lr = 0.1
"""
LIAR = "2"


class Introduced(PartitionClient):
    """A client that says other things of itself."""

    says: Mapping[str, Any] = {}

    def introduce(self, setup: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**super().introduce(setup), **self.says}


class Server:
    """A server with four clients at the far end of a fake grid, one of which lies."""

    def __init__(self, home: Path, **says: Any) -> None:
        (home / "e.toml").write_text(EXPERIMENT)
        self.file, self.out = home / "e.toml", home / "run"
        owners = [Introduced(self.file, i) for i in range(4)]
        owners[int(LIAR)].says = says
        self.grid = FakeGrid(owners, home / "clients", FakeClock())

    def lie(self, kind: str, change: Callable[[RecordDict], None]) -> None:
        def fault(name: str, message: Any) -> Any:
            return change if name == LIAR and message.metadata.message_type == kind else None

        self.grid.fault = fault

    def run(self, **settings: Any) -> Result:
        given = [(key.replace("__", "."), value) for key, value in settings.items()]
        config = configs.load(self.file, [("engine.name", "flower"), *given])
        return federation.run_federation(self.grid, config, self.out, silence)

    def events(self, kind: str) -> list[Event]:
        lines = (self.out / "events.jsonl").read_text().splitlines()
        return [e for e in map(json.loads, lines) if e["event"] == kind]


def change(name: str, how: Callable[[Any], Any]) -> Callable[[RecordDict], None]:
    """A change of one array of an answer."""

    def act(answer: RecordDict) -> None:
        values = answer.array_records["values"]
        old = values[name].numpy()
        values[name] = Array(np.asarray(how(old)).astype(old.dtype))

    return act


@pytest.mark.parametrize("score", [[[1e300, 1e300]], [[180.0, 0.1]], [[-7.66, 0.1]], [[1, -1]]])
def test_a_score_that_none_can_have_is_left_out_by_name(
    score: list[list[float]], tmp_path: Path
) -> None:
    server = Server(tmp_path)
    server.lie("evaluate.task", change("value", lambda _: score))
    server.run()
    rejected = server.events("rejected")
    assert {(e["client"], e["task"]) for e in rejected} == {(LIAR, "Score")}
    assert all("must lie in" in e["why"] for e in rejected)
    assert [e["round"] for e in rejected] == [0, 1, 2, 3]
    with (server.out / "metrics.csv").open() as table:
        rows = [row for row in csv.DictReader(table) if row["metric"].startswith("accuracy")]
    assert all(0 <= float(row["value"]) <= 1 for row in rows)
    assert not any(row["client"] == LIAR for row in rows)


def test_a_client_without_a_score_is_named_once(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.lie("evaluate.task", change("value", lambda v: v * math.nan))
    server.run()
    assert [(e["round"], e["clients"]) for e in server.events("untested")] == [(0, [LIAR])]


@pytest.mark.row(15, counts="malformed answers")
def test_a_choice_that_there_is_not_is_left_out_by_name(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.lie("train.task", change("extra.choice", lambda _: 999))
    server.run(method="ifca", ifca__clusters=2)
    assert {(e["client"], e["task"], e["why"]) for e in server.events("rejected")} == {
        (LIAR, "Choose", "its choice is 999, it must lie in [0, 1]")
    }


def poison(answer: RecordDict) -> None:
    """Many samples, and five times the opposite of what was learned."""
    answer.config_records["answer"]["samples"] = 10**9
    change("value", lambda w: -5 * w)(answer)


@pytest.mark.row(16, counts="false numbers of samples")
def test_many_declared_samples_do_not_buy_the_model(tmp_path: Path) -> None:
    found = {}
    for most in (1.0, 0.5, 0.1):
        (home := tmp_path / str(most)).mkdir()
        server = Server(home, samples=10**9)
        server.lie("train.task", poison)
        found[most] = server.run(engine__max_weight_share=most)
        capped = server.events("capped")
        if most == 1.0:
            assert not capped
            continue
        (event,) = capped
        assert (event["client"], event["cluster"], event["round"]) == (LIAR, 0, 1)
        assert event["declared"] > 0.999
        assert event["counted"] == pytest.approx(max(most, 0.25), abs=1e-3)
        assert f"client {LIAR}" in (server.out / "report.html").read_text()
    weights = {most: r.fed.sizes / r.fed.sizes.sum() for most, r in found.items()}
    assert weights[1.0][2] > 0.999
    assert weights[0.5][2] == pytest.approx(0.5)


@pytest.mark.row(16, counts="false numbers of samples")
def test_samples_as_declared_by_honest_clients_weigh_as_in_a_simulation(tmp_path: Path) -> None:
    server = Server(tmp_path)
    result = server.run()
    assert not server.events("capped")
    assert not server.events("rejected")
    assert result.fed.sizes is not result.fed.declared
    assert result.fed.sizes.equal(result.fed.declared)


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ({"shape": [1, 9, 9]}, "its samples have shape (1, 9, 9), the others' (1, 8, 8)"),
        ({"classes": [str(c) for c in range(5010)]}, "5,000 of its classes are not"),
    ],
)
@pytest.mark.row(15, counts="malformed answers")
def test_who_does_not_fit_is_turned_away_and_the_others_go_on(
    says: Mapping[str, Any], why: str, tmp_path: Path
) -> None:
    server = Server(tmp_path, **says)
    result = server.run()
    assert result.state.round == 3
    assert result.fed.classes == 10
    assert LIAR not in result.fed.names
    (refused,) = server.events("refused")
    assert refused["why"].startswith(f"client {LIAR} cannot take part: {why}")


@pytest.mark.row(16, counts="false numbers of samples")
def test_a_client_that_comes_back_with_more_samples_is_not_fit() -> None:
    came = {n: RemoteClient(n, i, 50, ("a", "b"), (2,)) for i, n in enumerate("xyz")}
    agreed = agree(came, ["late"])
    assert not agreed.unfit(came["x"])
    assert not agreed.unfit(RemoteClient("late", 9, 10**6, ("a",), (2,)))
    more = agreed.unfit(RemoteClient("x", 0, 51, ("a", "b"), (2,)))
    assert more == "it declares 51 samples, and 50 when it came first"


@pytest.mark.row(30, counts="hostile requests and names")
def test_words_of_a_client_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    server = Server(tmp_path)

    def complain(answer: RecordDict) -> None:
        answer.config_records["answer"]["error"] = "\x1b[2J\x1b]0;owned\x07 no\nmemory"

    server.lie("train.task", complain)
    server.run()
    for event in server.events("rejected"):
        assert event["why"].isprintable()
        assert "no memory" in event["why"]
