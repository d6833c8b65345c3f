"""What a client that is let in can do with numbers: nothing but be left out, by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import coterie as ct
from coterie.core.errors import DivergedError, QuorumError
from coterie.core.events import Event
from coterie.core.loop import evaluate
from coterie.core.types import Reply
from coterie.engines.question import Question, Refusal
from coterie.engines.serial import Serial
from coterie.methods import METHODS
from coterie.runs import measure
from coterie.tasks.solver import Solver
from tests.test_contract import measured, method
from tests.tiny import federation

HOSTILE = 3


def filled(x: float) -> Callable[[Tensor], Tensor]:
    """Every number becomes this one, as nearly as its type allows."""

    def change(t: Tensor) -> Tensor:
        if t.is_floating_point():
            return torch.full(t.shape, x, dtype=torch.float64).to(t.dtype)  # or infinity
        whole = torch.iinfo(t.dtype)
        value = 0 if math.isnan(x) else min(max(x, whole.min), whole.max)
        return torch.full_like(t, int(min(value, 2**62)))

    return change


EXTREMES: dict[str, Callable[[Tensor], Tensor]] = {
    "1e300": filled(1e300),
    "-1e300": filled(-1e300),
    "1e38": filled(1e38),
    "-1e38": filled(-1e38),
    "1e19": filled(1e19),
    "1e13": filled(1e13),
    "1e12": filled(1e12),
    "-1e12": filled(-1e12),
    "denormal": filled(1e-45),
    "zero": filled(0.0),
    "minus one": filled(-1.0),
    "999": filled(999.0),
    "nan": filled(math.nan),
    "inf": filled(math.inf),
    "mixed signs": lambda t: (
        torch.where(torch.arange(t.numel()).view(t.shape) % 2 == 0, t, -t)
        * (10**12 if t.is_floating_point() else 2**40)
    ),
    "one nan": lambda t: one(t, math.nan),
    "one huge": lambda t: one(t, 1e30),
    "twice": lambda t: 2 * t,
    "half": lambda t: t / 2 if t.is_floating_point() else t - 1,
}


def one(t: Tensor, x: float) -> Tensor:
    """The last number alone becomes this one."""
    flat = t.clone().reshape(-1)
    if flat.numel():
        flat[-1] = x if t.is_floating_point() else -1
    return flat.view(t.shape)


class Liar(Serial):
    """One client changes what it sends: its value, or one companion of it."""

    def __init__(self, part: str, change: Callable[[Tensor], Tensor]) -> None:
        self.part, self.change = part, change

    def answers(self, question: Question) -> Iterator[tuple[int, Reply | Refusal]]:
        for j, reply in super().answers(question):
            if isinstance(reply, Reply) and int(question.cohort[j]) == HOSTILE:
                reply = self.changed(reply)
            yield j, reply

    def changed(self, reply: Reply) -> Reply:
        if self.part == "value":
            return replace(reply, value=self.change(reply.value))
        return replace(reply, extra={name: self.change(t) for name, t in reply.extra.items()})


# send more than a value
EXTRA = {"fednova", "scaffold", "creff", "autocfl", "ifca", "flhc", "fedem", "fedrc", "fedpac"}
CASES = [(name, part) for name in METHODS for part in ("value", "extra")[: 1 + (name in EXTRA)]]


# One of each kind: beyond float32, large, impossible as a count, not a number, in one place alone.
FIRST = {"1e300", "-1e38", "1e12", "999", "minus one", "nan", "one huge", "mixed signs"}
MARKED = [pytest.param(x, marks=[] if x in FIRST else [pytest.mark.thorough]) for x in EXTREMES]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "part"), CASES)
@pytest.mark.parametrize("extreme", MARKED)
@pytest.mark.row(14)
def test_extreme_answers_end_no_run_without_a_code(
    name: str, part: str, extreme: str, figure: Callable[..., None]
) -> None:
    figure("hostile answers", 1)
    fed = federation(5)
    fed.backend = Liar(part, EXTREMES[extreme])
    m = method(name, fraction=1.0, **({"adjust": "all"} if name == "flhc" else {}))
    with suppress(DivergedError, QuorumError):  # the coded ends that a run may have
        for state in measured(m, fed, 3):
            scores = evaluate(m, state, fed)
            for row in measure.tested(state, scores, fed.names, fed.sizes, "clustered", None):
                assert math.isfinite(row.value), row
                assert "accuracy" not in row.metric or 0 <= row.value <= 1, row
    blamed = {i for asked in fed.ledger for i in asked.rejected}
    if extreme in ("inf", "1e300", "-1e300", "1e38", "-1e38", "one huge"):
        assert HOSTILE in blamed


@pytest.mark.parametrize(("name", "part"), CASES)
@pytest.mark.row(14)
def test_a_client_that_never_sends_a_number_ends_no_run(name: str, part: str) -> None:
    # Who is left out when groups are found is asked again, alone: nobody may need its answer then.
    fed = federation(5)
    fed.backend = Liar(part, filled(math.nan))
    m = method(name, fraction=1.0, **({"adjust": "all"} if name == "flhc" else {}))
    states = list(measured(m, fed, 4))
    assert {i for asked in fed.ledger for i in asked.rejected} <= {HOSTILE}
    others = torch.arange(5) != HOSTILE
    assert states[-1].round == 4
    assert (states[-1].assign[others] >= 0).all()


@pytest.mark.parametrize("lr", [1e10, 1e25])
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.row(14)
def test_training_that_diverges_ends_as_diverged_or_stays_finite(name: str, lr: float) -> None:
    fed, m = federation(), method(name, fraction=1.0, solver=Solver(lr=lr, epochs=5, batch=8))
    with suppress(DivergedError):
        for state in measured(m, fed, 3):
            scores = evaluate(m, state, fed)
            assert torch.isfinite(state.models).all()
            assert torch.isfinite(scores.loss).all()
    kept = [t for memory in fed.memories().values() for t in memory.values()]
    assert all(torch.isfinite(t).all() for t in kept)


@pytest.mark.row(14)
def test_a_run_that_diverges_tells_of_every_client_before_it_ends() -> None:
    heard: list[Event] = []
    people = ct.partition("digits", "iid", clients=3)
    with pytest.raises(DivergedError) as error:
        ct.fit(ct.Local(Solver(lr=1e10)), people, "cnn-s", rounds=2, on_event=heard.append)
    assert error.value.exit == 6
    told = [e for e in heard if e["event"] == "rejected"]
    assert {(e["client"], e["round"], e["task"]) for e in told} == {
        (name, 1, "Train") for name in people.names
    }
    assert all("private are not finite" in e["why"] for e in told)
