"""The core of a federation's server against an oracle, whatever happens in whatever order.

Clients join, leave, come back, answer twice, late, wrongly or not at all; the server dies and is
restored. After every step the committed models are what NumPy computes in float64 from the clients
whose answers may count, and nobody else.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

pytest.importorskip("flwr")

from coterie.core.client import Client
from coterie.core.errors import DivergedError, QuorumError
from coterie.core.loop import evaluate
from coterie.core.rng import stream
from coterie.core.types import Method, State
from coterie.engines.flower.backend import Deadlines, Retrying
from coterie.methods.fedavg import FedAvg
from coterie.methods.ifca import IFCA
from coterie.runs import checkpoint
from coterie.runs.records import RunFolder
from coterie.tasks.solver import Solver
from coterie.tasks.train import Train
from coterie.tasks.variants import Choose
from tests.engines.flower import test_engine as wrong
from tests.engines.flower.fake import Rig
from tests.faults.disk import PowerCut
from tests.faults.points import listening
from tests.tiny import same

SOLVER = Solver(lr=0.1, steps=2, batch=8)
N, QUORUM, NEEDED = 6, 0.7, 5
CHANGES = {change.__name__: change for change in wrong.FAULTS if change is not wrong.lying}
CLIENTS = st.integers(0, N - 1)
FAULTS = st.sampled_from(["lost", "late", "down", "untaken", "twice", *CHANGES])


class Events(list[dict[str, Any]]):
    """What is told, written to a run's folder as it is heard."""

    def __init__(self, folder: RunFolder) -> None:
        super().__init__()
        self.folder = folder

    def append(self, event: dict[str, Any]) -> None:
        super().append(event)
        self.folder.event(event)


class ServerCore(RuleBasedStateMachine):
    """A server of six clients, of whom one has not come yet."""

    method: ClassVar[Any] = FedAvg(SOLVER)
    seen: ClassVar[dict[str, int]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.home = tempfile.TemporaryDirectory()
        self.folder = Path(self.home.name)
        self.rig = Rig(self.folder / "clients", N, Deadlines(deadline=20.0, quorum=QUORUM))
        self.rig.events = Events(RunFolder(self.folder))
        self.rig.grid.fault = lambda name, message: self.faults.get(int(name))
        self.faults: dict[int, Any] = {}
        self.log = b""
        self.next_node = 200
        self.rounds = Retrying(self.method, 1, self.rig.events.append)

    def teardown(self) -> None:
        self.home.cleanup()

    def count(self, what: str) -> None:
        """For the scorecard: that it did happen."""
        self.seen[what] = self.seen.get(what, 0) + 1

    @initialize()
    def begin(self) -> None:
        self.rig.grid.online.discard(100 + N - 1)  # it comes late, or never
        self.fed = self.rig.server()
        self.state: State = self.rounds.init(self.fed.at(-1))
        self.commit()

    def commit(self) -> None:
        """What a run does at the end of a round."""
        checkpoint.save(self.folder / "checkpoints", self.state, self.fed.memories(), {})
        self.saved = self.state

    # -- who is there --------------------------------------------------------------------------

    def nodes(self, i: int) -> set[int]:
        owners = self.rig.grid.owners
        return {n for n in self.rig.grid.online if owners[n].name == str(i)}

    @rule(i=CLIENTS)
    def leave(self, i: int) -> None:
        self.rig.grid.online -= self.nodes(i)
        self.count("left")

    @rule(i=CLIENTS, anew=st.booleans())
    def come(self, i: int, anew: bool) -> None:
        """Somebody comes, or comes back: where it was, or under another node."""
        if self.nodes(i):
            return
        node = self.next_node if anew else 100 + i
        self.next_node += anew
        self.rig.grid.owners[node] = self.rig.grid.owners[100 + i]
        self.rig.grid.came[node] = str(self.rig.time.time)
        self.rig.grid.online.add(node)
        self.count("came")

    @precondition(lambda self: len(self.rig.grid.online) < 9)
    @rule(i=CLIENTS)
    def twin(self, i: int) -> None:
        """Another node says that it is this client."""
        self.rig.grid.owners[self.next_node] = self.rig.grid.owners[100 + i]
        self.rig.grid.online.add(self.next_node)
        self.next_node += 1
        self.count("twins")

    # -- what goes wrong -----------------------------------------------------------------------

    @rule(who=st.sets(CLIENTS, min_size=1, max_size=4), fault=FAULTS)
    def misbehave(self, who: set[int], fault: str) -> None:
        """In the next round, these clients' answers are not as they must be."""
        self.faults |= dict.fromkeys(who, CHANGES.get(fault, fault))
        self.count("faults")

    @rule(seconds=st.integers(1, 30))
    def tick(self, seconds: int) -> None:
        """Time passes, and what was late arrives."""
        self.rig.time.sleep(seconds)
        self.rig.grid.release()

    @rule(after=st.integers(0, 2 * N))
    def crash(self, after: int) -> None:
        """The server dies in the middle of a round, and is restored from its last checkpoint."""
        left = [after]

        def hear(point: str, about: tuple[object, ...]) -> None:
            left[0] -= point in ("round", "asked", "heard", "welcomed")
            if left[0] < 0 and point == "heard":
                raise PowerCut

        with listening(hear):
            try:
                self.rounds.round(self.state, self.fed.at(self.state.round))
            except (PowerCut, QuorumError, DivergedError):
                self.count("crashes")
        self.fed = self.rig.server()
        found, faults = checkpoint.latest(self.folder / "checkpoints")
        assert not faults
        assert same(found.state, self.saved)
        self.state = found.state

    # -- rounds --------------------------------------------------------------------------------

    @rule()
    def play(self) -> None:
        """A round, which commits what the oracle says, or nothing."""
        may_count = [i for i in range(N) if self.nodes(i) and self.faults.get(i) in (None, "twice")]
        before = self.state
        if len(may_count) < NEEDED:
            with pytest.raises((QuorumError, DivergedError)):
                self.rounds.round(before, self.fed.at(before.round))
            assert same(self.state, self.saved)
            self.count("rounds abandoned")
        else:
            after = self.rounds.round(before, self.fed.at(before.round))
            models, assign = oracle(self.method, before, may_count, self.fed)
            np.testing.assert_allclose(after.models.numpy(), models, rtol=1e-5, atol=1e-6)
            assert after.assign.tolist() == assign
            self.state = replace(after, round=before.round + 1)
            self.commit()
            self.count("rounds committed")
        self.faults.clear()

    @precondition(lambda self: any(self.nodes(i) for i in range(N)))
    @rule()
    def test_everybody(self) -> None:
        """A test changes nothing."""
        self.faults.clear()
        if not any(self.nodes(i) and int(self.state.assign[i]) >= 0 for i in range(N)):
            return
        memories = {i: dict(m) for i, m in self.fed.memories().items()}
        evaluate(self.method, self.state, self.fed)
        assert same(self.state, self.saved)
        assert memories == self.fed.memories()

    # -- what always holds ---------------------------------------------------------------------

    @invariant()
    def nobody_counts_twice(self) -> None:
        for asked in getattr(self, "fed", self.rig.fed).ledger:
            counted = [i for i in asked.clients.tolist() if i not in asked.rejected]
            assert len(set(counted)) == len(counted)

    @invariant()
    def everybody_is_in_one_cluster_or_has_not_come(self) -> None:
        if not hasattr(self, "state"):
            return
        k, assign = len(self.state.models), self.state.assign
        assert assign.shape == (N,)
        assert -1 <= int(assign.min()) <= int(assign.max()) < k
        assert torch.isfinite(self.state.models).all()
        members = sum(int((assign == c).sum()) for c in range(-1, k))
        assert members == N

    @invariant()
    def the_log_only_grows(self) -> None:
        file = self.folder / "events.jsonl"
        now = file.read_bytes() if file.exists() else b""
        assert now.startswith(self.log)
        assert all(json.loads(line)["event"] for line in now.splitlines()[-3:])
        self.log = now


def oracle(method: Any, state: State, who: list[int], fed: Any) -> tuple[Any, list[int]]:
    """The models and the clusters after a round in which these clients count, in float64."""
    clusters = isinstance(method, IFCA)
    task: Any = Choose(SOLVER) if clusters else Train(SOLVER)
    models = state.models.double().numpy().copy()
    assign = state.assign.tolist() if clusters else [0] * N
    rows, sizes = {}, {}
    for i in who:
        client: Client = fed.backend.exchange.grid.owners[100 + i].data
        sent = state.models if clusters else state.models[0]
        rng = stream(fed.seed, "train", state.round, 0, client.name)
        reply = task(client, sent, {}, fed.layout, rng)
        rows[i], sizes[i] = reply.value.double().numpy(), len(client)
        assign[i] = int(reply.extra["choice"]) if clusters else 0
    for k in range(len(models)):
        mine = [i for i in who if assign[i] == k]
        if mine:
            weights = np.array([sizes[i] for i in mine]) / sum(sizes[i] for i in mine)
            assert (weights >= 0).all()
            assert abs(weights.sum() - 1) < 1e-12
            models[k] = weights @ np.stack([rows[i] for i in mine])
    return models, assign


def machine(method: Method) -> type[ServerCore]:
    name = type(method).__name__
    return type(name, (ServerCore,), {"method": method, "seen": {}})


METHODS = {"fedavg": FedAvg(SOLVER), "ifca": IFCA(SOLVER, clusters=2)}


@pytest.mark.row(6, 7, 8, 14, 15, 16, 18, 19)
@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_whatever_happens_the_committed_models_are_the_oracles(
    name: str, figure: Callable[..., None]
) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    cls = machine(METHODS[name])
    often = settings(
        max_examples=12,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(cls, settings=often)
    for what in ("rounds committed", "rounds abandoned", "crashes", "twins", "came"):
        assert cls.seen.get(what, 0) > 2, f"{what}: {cls.seen}"
        figure(f"state machine: {what}", cls.seen[what])
