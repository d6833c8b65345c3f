"""Clients that are not there: nobody comes, too few answer, a whole cluster is gone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("flwr")

import coterie as ct
from coterie import config as configs
from coterie.core.errors import QuorumError
from coterie.core.loop import evaluate, run
from coterie.engines.flower.backend import Deadlines, Retrying
from coterie.engines.flower.exchange import Exchange
from coterie.runs import checkpoint
from coterie.studies.remote import federation
from tests.engines.flower.fake import Rig
from tests.faults.commands import written
from tests.faults.test_crash_federation import Federation
from tests.faults.test_crash_federation import pageless as pageless  # a fixture for all here
from tests.tiny import clients, network

SOLVER = ct.Solver(lr=0.1, batch=8)


def served(fed: Federation, told: list[dict[str, Any]], **settings: Any) -> None:
    """`coterie serve`, or its resume, with some settings."""
    again = bool(checkpoint.rounds(fed.out / "checkpoints"))
    given = {key.replace("__", "."): value for key, value in settings.items()}
    config = configs.load(fed.home / "e.toml", [("train.rounds", 4), *given.items()])
    federation.run_federation(fed.grid, config, fed.out, told.append, resume=again)


@pytest.mark.row(9)
def test_who_waits_for_nobody_says_so_every_ten_seconds_and_ends_with_4(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.grid.online.clear()
    exchange = Exchange(rig.grid, tell=rig.events.append, clock=rig.time.clock())
    config = configs.load(None, [("engine.name", "flower"), ("engine.connect_timeout", 35)])
    with pytest.raises(QuorumError, match="0 of 3 clients came in 36 s") as error:
        federation.meet(exchange, config, ["a", "b", "c"], lambda: None)
    assert error.value.exit == 4
    waited = [(e["seconds"], e["clients"], e["of"]) for e in rig.said("waiting")]
    assert waited == [(10, 0, 3), (20, 0, 3), (30, 0, 3)]


@pytest.mark.row(8)
def test_most_clients_are_gone_for_three_attempts_and_the_run_goes_on_later(
    tmp_path: Path, figure: Callable[..., None]
) -> None:
    whole, fed = Federation(tmp_path / "whole"), Federation(tmp_path / "fed")
    served(whole, [])
    told: list[dict[str, Any]] = []
    how: dict[str, Any] = {"engine__deadline": 0.5, "engine__max_abandoned": 3}
    away = ("0", "1")

    def fault(name: str, message: Any) -> str | None:
        late = any(e["event"] == "round" and e["round"] == 1 for e in told)
        return "lost" if late and name in away else None

    fed.grid.fault = fault
    with pytest.raises(QuorumError, match="1 of 3 clients answered in round 2") as error:
        served(fed, told, **how)
    assert error.value.exit == 4
    assert sum(e["event"] == "abandoned" for e in told) == 3
    saved, _ = checkpoint.latest(fed.out / "checkpoints")
    assert saved.state.round == 1
    fed.grid.fault = lambda name, message: None
    served(fed, told)
    ours, theirs = (
        {k: v for k, v in written(f.out).items() if "state" in k or ".csv" in k}
        for f in (fed, whole)
    )
    assert ours == theirs
    figure("rounds abandoned", 3)


@ct.dataclass(frozen=True)
class Script(ct.IFCA):
    """Everybody holds what the script says: one of three models, in round `starts` of two."""

    def round(self, state: ct.State, fed: ct.Federation) -> ct.State:
        labels = fed.clients % (3 if state.round != self.starts else 2)
        state = state.reassign(fed.clients, labels)
        return ct.merge(state, fed.ask(fed.clients, ct.Train(self.solver), state))


@pytest.mark.row(10, counts="clusters that fell asleep")
def test_a_cluster_that_falls_asleep_is_told_and_so_is_its_return(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    people = ct.Population.of(clients(6), classes=4)
    method = Script(SOLVER, clusters=3, starts=1)
    how: dict[str, Any] = {"rounds": 3, "engine": "serial", "page": False, "keep": 9}
    ct.fit(method, people, network(), out=tmp_path / "r", on_event=told.append, **how)
    found = [(e["event"], e["round"], e["clusters"]) for e in told if "clusters" in e]
    found = [x for x in found if x[0] in ("dormant", "revived")]
    assert found == [("dormant", 2, [2]), ("revived", 3, [2])]
    saved = [
        checkpoint.load(checkpoint.at(tmp_path / "r" / "checkpoints", t)).state.models[2]
        for t in (1, 2, 3)
    ]
    assert torch.equal(saved[0], saved[1]), "asleep, it stays as it was"
    assert not torch.equal(saved[1], saved[2])
    assert "nan" not in (tmp_path / "r" / "metrics.csv").read_text()


@pytest.mark.row(10, counts="clusters that fell asleep")
def test_a_cluster_whose_members_are_all_away_sleeps_and_lives_again(tmp_path: Path) -> None:
    """Three clusters, of which one is gone for two rounds."""
    rig = Rig(tmp_path, 6, Deadlines(deadline=5, quorum=0.3))
    method = Retrying(Script(SOLVER, clusters=3, starts=99), 3)
    states = run(method, rig.fed, 4)
    before = [next(states), next(states)][-1]
    gone = {102, 105}  # all who hold the third model
    rig.grid.online -= gone
    for _ in range(2):
        asleep = next(states)
        assert torch.equal(asleep.models[2], before.models[2])
        assert not torch.equal(asleep.models[:2], before.models[:2])
        assert asleep.assign.tolist() == [0, 1, 2, 0, 1, 2]
        scores = evaluate(method, asleep, rig.fed)
        assert scores.clients.tolist() == [0, 1, 3, 4], "a gap in the curves of who is away"
        assert torch.isfinite(scores.accuracy).all()
    kept = checkpoint.load(checkpoint.save(tmp_path / "c", asleep, {}, {})).state
    assert torch.equal(kept.models, asleep.models)
    rig.grid.online |= gone
    awake = next(states)
    assert not torch.equal(awake.models[2], before.models[2])
    assert torch.isfinite(awake.models).all()
