"""Clients come, go, answer late, twice, wrongly; the server crashes and is restored. Whatever
happens, a committed model is the mean of the answers that were accepted, each client once."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from coterie.core.errors import QuorumError
from coterie.core.types import State
from coterie.engines.flower.backend import Deadlines, Retrying
from coterie.methods.ditto import Ditto
from coterie.tasks.solver import Solver
from tests.engines.flower.fake import Rig
from tests.engines.flower.test_engine import FAULTS
from tests.tiny import federation

N = 5
METHOD = Ditto(Solver(lr=0.1, batch=8))
WHO = st.integers(0, N - 1)


class Federation(RuleBasedStateMachine):
    """A Ditto federation under attack, beside an oracle in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.home = tempfile.TemporaryDirectory()
        deadlines = Deadlines(deadline=4, quorum=0.4)
        self.rig = Rig(Path(self.home.name), N, deadlines)
        self.state: State = self.method.init(self.rig.fed.at(-1))
        self.faults: dict[str, Any] = {}
        self.seen = 0
        self.rig.grid.fault = lambda name, message: self.faults.get(name)

    def teardown(self) -> None:
        self.home.cleanup()

    @property
    def method(self) -> Retrying:
        return Retrying(METHOD, 2, self.rig.events.append)

    @rule(who=WHO)
    def leave(self, who: int) -> None:
        self.rig.grid.online.discard(100 + who)

    @rule(who=WHO)
    def join(self, who: int) -> None:
        self.rig.grid.online.add(100 + who)

    @rule(who=WHO, fault=st.sampled_from([None, "lost", "late", "down", "twice", *FAULTS]))
    def misbehave(self, who: int, fault: Any) -> None:
        self.faults[str(who)] = fault

    @rule()
    def late_answers_arrive(self) -> None:
        self.rig.grid.release()

    @rule()
    def server_crashes(self) -> None:
        self.rig.server()
        self.seen = 0

    @rule()
    def server_crashes_in_a_round(self) -> None:
        """Clients have done the round, and kept; nothing of it was committed."""
        with contextlib.suppress(QuorumError):
            METHOD.round(self.state, self.rig.fed.at(self.state.round))
        self.server_crashes()

    @rule()
    def train(self) -> None:
        fed = self.rig.fed
        fed.ledger.clear()
        good = {
            who
            for who in range(N)
            if 100 + who in self.rig.grid.online and self.faults.get(str(who)) in (None, "twice")
        }
        before = self.state
        try:
            after = self.method.round(before, fed.at(before.round))
        except QuorumError:
            assert len(good) < fed.backend.deadlines.needed(N)
            return
        assert len(good) >= fed.backend.deadlines.needed(N)
        self.state = replace(after, round=before.round + 1)
        serial = federation(N).at(before.round)
        want = serial.ask(serial.clients, METHOD.local, before)
        rows = sorted(good)
        sizes = serial.sizes[rows]
        oracle = (sizes[:, None] * want.values[rows].double()).sum(0) / sizes.sum()
        assert torch.allclose(after.models[0].double(), oracle, atol=1e-5)
        for entry in fed.ledger:
            assert not set(entry.rejected) & good

    @invariant()
    def everybody_holds_one_model(self) -> None:
        assert self.state.assign.tolist() == [0] * N
        assert self.state.models.isfinite().all()

    @invariant()
    def a_memory_is_of_a_round_that_was_asked(self) -> None:
        for file in Path(self.home.name).rglob("*.safetensors"):
            assert int(file.name.split(".")[0]) <= self.state.round

    @invariant()
    def events_only_grow(self) -> None:
        assert len(self.rig.events) >= self.seen
        self.seen = len(self.rig.events)


TestFederation = pytest.mark.slow(Federation.TestCase)
TestFederation.settings = settings(max_examples=15, stateful_step_count=15, deadline=None)
