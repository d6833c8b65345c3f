"""The Flower engine over a fake grid: equal bits, and what happens when clients do not answer."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from coterie.core.errors import DataError, DivergedError, QuorumError
from coterie.core.loop import evaluate, run
from coterie.core.metric_names import METRICS
from coterie.core.types import Method, State
from coterie.engines.flower.backend import AbandonedError, Deadlines, Retrying
from coterie.engines.flower.exchange import PAUSE
from coterie.engines.flower.internals import ObjectPushError
from coterie.engines.flower.runtime import Reached
from coterie.methods import METHODS, find
from coterie.methods.ditto import Ditto
from coterie.methods.fedavg import FedAvg
from coterie.methods.scaffold import SCAFFOLD
from coterie.tasks import wire
from coterie.tasks.measured import measured
from coterie.tasks.score import Score
from coterie.tasks.signature import Basis
from coterie.tasks.solver import Solver
from coterie.tasks.train import Train
from tests.engines.flower.fake import Rig
from tests.tiny import federation, same

SOLVER = Solver(lr=0.1, batch=8)


def made(name: str) -> Method:
    cls: Any = find(name)
    method: Method = cls()
    return method


def states(method: Method, fed: Any, rounds: int = 3) -> list[State]:
    return list(run(method, fed, rounds))


FIVE = ("fedavg", "fedclust", "dapfl", "feddsmic", "ditto")
TOLD = ("oracle", "metadata")  # what nobody knows of clients on other machines
REST = [
    pytest.param(name, marks=pytest.mark.slow) for name in METHODS if name not in (*FIVE, *TOLD)
]


@pytest.mark.parametrize("name", [*FIVE, *REST])
def test_every_method_has_the_bits_of_the_serial_engine(name: str, tmp_path: Path) -> None:
    serial, flower = federation(), Rig(tmp_path).fed
    ours, theirs = (states(made(name), fed) for fed in (serial, flower))
    assert all(same(a, b) for a, b in zip(ours, theirs, strict=True))
    scores = [evaluate(made(name), ours[-1], fed) for fed in (serial, flower)]
    assert torch.equal(scores[0].accuracy, scores[1].accuracy)
    assert torch.equal(scores[0].loss, scores[1].loss)
    for a, b in zip(serial.ledger, flower.ledger, strict=True):
        assert a.task == b.task
        assert torch.equal(a.down, b.down)
        assert torch.equal(a.up, b.up)


def test_further_metrics_have_the_bits_of_the_serial_engine(tmp_path: Path) -> None:
    serial, rig = federation(), Rig(tmp_path)
    task = measured(Score(), list(METRICS))
    ours, theirs = (evaluate(made("fedavg"), everybody(rig), f, task) for f in (serial, rig.fed))
    assert ours.extra.keys() == theirs.extra.keys() == {"numbers", "classes"}
    assert all(torch.equal(t, theirs.extra[name]) for name, t in ours.extra.items())


def misses(labels: Any, scores: Any) -> float:
    return float((scores.argmax(1) != labels).mean())


def test_a_function_of_others_is_called_only_where_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "TRUSTED", set())
    rig, task = Rig(tmp_path), measured(Score(), [f"{__name__}:misses"])
    with pytest.raises(QuorumError):
        evaluate(made("fedavg"), everybody(rig), rig.fed, task)
    wire.trust(__name__)
    scores = evaluate(made("fedavg"), everybody(rig), rig.fed, task)
    assert torch.allclose(scores.extra["numbers"][:, 0, 0], 1 - scores.accuracy[0])


def test_the_oracle_has_nothing_to_tell_of_other_machines(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing to tell"):
        made("oracle").init(Rig(tmp_path).fed)


def test_clients_on_other_machines_come_with_no_column(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no column to group them by"):
        made("metadata").init(Rig(tmp_path).fed)


def test_memories_never_reach_the_server(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    states(Ditto(SOLVER), rig.fed, 1)
    assert rig.fed.memories() == {}
    assert rig.fed.memory == {}
    assert len(list(tmp_path.rglob("*.safetensors"))) == 8


@pytest.mark.row(6)
def test_a_client_that_is_lost_is_left_out_and_named(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.grid.fault = lambda name, message: "lost" if name == "3" else None
    replies = rig.fed.at(0).ask(rig.fed.clients, Train(SOLVER), everybody(rig))
    assert replies.clients.tolist() == [0, 1, 2, 4, 5, 6, 7]
    assert [e["client"] for e in rig.said("missing")] == ["3"]
    assert rig.time.time >= rig.deadlines.deadline


def everybody(rig: Rig) -> State:
    return State.shared(rig.fed.layout.initial, len(rig.fed.clients))


def test_nobody_is_waited_for_who_is_not_there_once_enough_answered(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.grid.online -= {100, 101}
    replies = rig.fed.at(0).ask(rig.fed.clients, Train(SOLVER), everybody(rig))
    assert len(replies.clients) == 6
    assert rig.time.time < 3


@pytest.mark.row(7)
def test_who_comes_back_in_time_is_asked_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path, deadlines=Deadlines(deadline=60, quorum=1.0))
    rig.grid.online -= {100}

    def wake() -> None:
        if rig.time.time > 10:
            rig.grid.online |= {100}

    rig.time.wake = wake
    replies = rig.fed.at(0).ask(rig.fed.clients, Train(SOLVER), everybody(rig))
    assert len(replies.clients) == 8
    serial = federation()
    want = serial.at(0).ask(serial.clients, Train(SOLVER), everybody(rig))
    assert torch.equal(replies.values, want.values)


def test_a_node_that_dies_over_a_message_is_asked_again_when_it_is_back(tmp_path: Path) -> None:
    rig = Rig(tmp_path, deadlines=Deadlines(deadline=60, quorum=1.0))
    died: list[str] = []

    def fault(name: str, message: Message) -> Any:
        if name == "2" and not died:
            died.append(name)
            return "down"
        return None

    rig.grid.fault = fault
    assert len(rig.fed.at(0).ask(rig.fed.clients, Train(SOLVER), everybody(rig)).clients) == 8
    assert "code 5" in rig.said("unreached")[0]["why"]


def test_a_node_that_went_and_came_back_unseen_is_asked_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path, deadlines=Deadlines(deadline=60, quorum=1.0))
    rig.grid.fault = lambda name, message: "lost" if name == "2" else None

    def wake() -> None:
        rig.grid.came[102] = "later"
        rig.grid.fault = lambda name, message: None

    rig.time.wake = wake
    assert len(rig.fed.at(0).ask(rig.fed.clients, Train(SOLVER), everybody(rig)).clients) == 8
    assert rig.time.time < 10


@pytest.mark.row(6, 19)
def test_a_late_answer_is_dropped_and_told(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    view = rig.fed.at(0)
    rig.grid.fault = lambda name, message: "late" if name == "5" else None
    view.ask(rig.fed.clients, Train(SOLVER), everybody(rig))
    rig.grid.fault = lambda name, message: None
    rig.grid.release()
    again = view.ask(rig.fed.clients, Train(SOLVER), everybody(rig))
    assert [e["client"] for e in rig.said("late")] == ["5"]
    serial = federation().at(0)
    serial.ask(serial.clients, Train(SOLVER), everybody(rig))
    want = serial.ask(serial.clients, Train(SOLVER), everybody(rig))
    assert torch.equal(again.values, want.values)


@pytest.mark.row(19)
def test_an_answer_that_comes_twice_counts_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.grid.fault = lambda name, message: "twice"
    assert same(states(FedAvg(SOLVER), rig.fed)[-1], states(FedAvg(SOLVER), federation())[-1])
    assert rig.said("duplicate")


def wrong(rig: Rig, change: Any) -> Any:
    """A fault: client 1 answers with its records changed."""
    return lambda name, message: change if name == "1" else None


def nan(answer: RecordDict) -> None:
    values = answer.array_records["values"]
    row = values["value"].numpy().copy()
    row[3:5] = np.nan
    values["value"] = Array(row)


def shape(answer: RecordDict) -> None:
    values = answer.array_records["values"]
    values["value"] = Array(values["value"].numpy()[:-1])


def kind(answer: RecordDict) -> None:
    values = answer.array_records["values"]
    values["value"] = Array(values["value"].numpy().astype(np.float64))


def lying(answer: RecordDict) -> None:
    values = answer.array_records["values"]
    true = values["value"]
    data = true.data.replace(f"({true.shape[0]},)".encode(), b"(1<<44,)"[:5])
    values["value"] = Array(true.dtype, true.shape, true.stype, data)


def extra(answer: RecordDict) -> None:
    answer.array_records["values"]["more"] = Array(np.zeros(3, dtype=np.float32))


def negative(answer: RecordDict) -> None:
    answer.config_records["answer"]["samples"] = -5


def many(answer: RecordDict) -> None:
    answer.config_records["answer"]["samples"] = 10**9


def replayed(answer: RecordDict) -> None:
    answer.config_records["answer"]["round"] = 99


def another(answer: RecordDict) -> None:
    answer.config_records["answer"]["client"] = "2"


def nothing(answer: RecordDict) -> None:
    del answer["values"]


def raised(answer: RecordDict) -> None:
    answer.config_records["answer"]["error"] = "RuntimeError: no memory"


FAULTS = {
    nan: "2 of 92 values of its update are not finite",
    shape: r"value expected \(92,\) float32, got \(91,\) float32",
    kind: r"value expected \(92,\) float32, got \(92,\) float64",
    lying: "value: its header",
    extra: "unknown .'more'.",
    negative: "-5 is no number of samples",
    many: "it answers for 1,000,000,000 samples and declared 21",
    replayed: "its round is 99, expected 0",
    another: "its client is '2', expected '1'",
    nothing: "it holds no values",
    raised: "it could not: RuntimeError: no memory",
}


@pytest.mark.parametrize("change", FAULTS, ids=lambda f: f.__name__)
@pytest.mark.row(14, 15, 16, 19, counts="malformed answers")
def test_a_wrong_answer_is_refused_and_the_others_are_used(change: Any, tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.grid.fault = wrong(rig, change)
    replies = rig.fed.at(0).ask(rig.fed.clients, Train(SOLVER), everybody(rig))
    assert replies.clients.tolist() == [0, 2, 3, 4, 5, 6, 7]
    assert re.search(FAULTS[change], rig.fed.ledger[-1].rejected[1])
    serial = federation()
    want = serial.at(0).ask(serial.clients, Train(SOLVER), everybody(rig))
    assert torch.equal(replies.values, want.values[replies.clients])


@pytest.mark.row(15, counts="malformed answers")
def test_an_odd_form_among_many_is_refused_where_the_task_does_not_tell(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.grid.fault = wrong(rig, shape)
    rig.fed.at(0).ask(rig.fed.clients, Basis(2), everybody(rig))
    rejected = next(a.rejected for a in rig.fed.ledger if a.rejected)
    assert "as most sent" in rejected[1]


@pytest.mark.row(8)
def test_without_a_quorum_nothing_changes_and_the_run_ends(tmp_path: Path) -> None:
    rig = Rig(tmp_path, deadlines=Deadlines(deadline=5, quorum=0.75))
    method = Retrying(FedAvg(SOLVER), 3, rig.events.append)
    rounds = run(method, rig.fed, 3)
    before = [next(rounds), next(rounds)][-1]
    rig.grid.online -= {100, 101, 102}
    with pytest.raises(QuorumError, match="5 of 8 clients answered in round 2, 6 are needed") as e:
        next(rounds)
    assert e.value.exit == 4
    assert [x["attempt"] for x in rig.said("abandoned")] == [1, 2, 3]
    rig.grid.online |= {100, 101, 102}
    rest = list(run(method, rig.fed, 3, before))
    assert same(rest[-1], states(FedAvg(SOLVER), federation())[-1])


@pytest.mark.row(8)
def test_a_client_that_is_never_there_does_not_stop_those_who_found_their_groups(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, deadlines=Deadlines(deadline=5, quorum=0.75))
    rig.grid.online -= {103}
    state = states(Retrying(made("fedclust"), 3, rig.events.append), rig.fed, 2)[-1]
    assert (state.round, state.unplaced.tolist()) == (2, [3])
    assert not rig.said("abandoned")


def test_another_attempt_draws_another_cohort(tmp_path: Path) -> None:
    rig = Rig(tmp_path, deadlines=Deadlines(deadline=5, quorum=1.0))
    first = set(rig.fed.at(0).sample(0.25).tolist())
    rig.grid.online -= {100 + i for i in first}
    state = states(Retrying(FedAvg(SOLVER, 0.25), 5, rig.events.append), rig.fed, 1)[-1]
    assert len(rig.said("abandoned")) >= 1
    assert state.round == 1


@pytest.mark.row(14)
def test_updates_that_are_never_finite_end_the_run_as_diverged(tmp_path: Path) -> None:
    rig = Rig(tmp_path, deadlines=Deadlines(deadline=5))
    method = Retrying(FedAvg(replace(SOLVER, lr=1e30)), 3, rig.events.append)
    with pytest.raises(DivergedError) as error:
        states(method, rig.fed)
    assert error.value.exit == 6


def test_an_evaluation_without_any_answer_ends_the_run(tmp_path: Path) -> None:
    rig = Rig(tmp_path, deadlines=Deadlines(deadline=5))
    rig.grid.online.clear()
    with pytest.raises(AbandonedError) as error:
        evaluate(FedAvg(SOLVER), everybody(rig), rig.fed)
    assert error.value.exit == 4


@pytest.mark.parametrize("method", [Ditto(SOLVER), SCAFFOLD(SOLVER, fraction=1.0)])
@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.row(1)
def test_a_server_that_crashed_in_a_round_does_it_again_to_the_same_bits(
    method: Method, at: int, tmp_path: Path
) -> None:
    """Clients answered and kept; the round was not committed; it starts from what was before."""
    want = states(method, federation(), 4)
    rig = Rig(tmp_path)
    saved = states(method, rig.fed, at)[-1] if at else next(run(method, rig.fed, 0))
    method.round(saved, rig.fed.at(at))  # and the server dies before it can save
    rest = list(run(method, rig.server(), 4, saved))
    assert same(rest[-1], want[-1])
    scores = [evaluate(method, want[-1], f) for f in (rig.fed, ended(method))]
    assert torch.equal(scores[0].loss, scores[1].loss)


def ended(method: Method) -> Any:
    fed = federation()
    states(method, fed, 4)
    return fed


@pytest.mark.row(18)
def test_a_second_client_of_a_name_is_refused_and_the_first_stays(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    twin = rig.grid.owners[103]
    rig.grid.owners[200] = twin
    rig.grid.online.add(200)
    replies = rig.fed.at(0).ask(rig.fed.clients, Train(SOLVER), everybody(rig))
    assert len(replies.clients) == 8
    assert rig.said("refused") == [
        {"event": "refused", "node": "200", "why": "a client 3 is there already"}
    ]
    assert rig.fed.backend.exchange.clients["3"].node == 103


def test_who_could_not_be_asked_for_its_name_is_asked_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.grid.deaf = {"3"}
    exchange = rig.server().backend.exchange
    assert set(exchange.clients) == set(rig.names) - {"3"}
    rig.grid.deaf = set()
    for seconds, there in ((0.9 * PAUSE, False), (0.2 * PAUSE, True)):
        rig.time.sleep(seconds)
        exchange.look()
        exchange.collect()
        assert ("3" in exchange.clients) is there
    assert [e["why"] for e in rig.said("refused")] == ["it did not say who it is: node unavailable"]


def test_a_message_that_was_not_taken_is_sent_again(tmp_path: Path) -> None:
    rig, refusals = Rig(tmp_path), iter(["untaken", "untaken"])
    rig.grid.fault = lambda name, message: next(refusals, None) if name == "3" else None
    replies = rig.fed.at(0).ask(rig.fed.clients, Train(SOLVER), everybody(rig))
    assert len(replies.clients) == 8
    assert next(refusals, None) is None


def test_what_a_dying_superlink_forgot_was_not_taken() -> None:
    class Dying:
        def push_messages(self, messages: Any) -> Any:
            raise ObjectPushError("an object", 1, "a session")

    reached = Reached(Dying(), None)  # type: ignore[arg-type]
    assert list(reached.push_messages([None, None])) == [None, None]


@pytest.mark.row(7)
def test_a_client_that_comes_back_under_another_node_keeps_its_name_and_memory(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    want = states(Ditto(SOLVER), federation(), 4)
    rounds = run(Ditto(SOLVER), rig.fed, 4)
    for _ in range(3):
        next(rounds)
    rig.grid.owners[200] = rig.grid.owners[103]
    rig.grid.online = rig.grid.online - {103} | {200}
    got = list(rounds)
    assert same(got[-1], want[-1])
    scores = [evaluate(Ditto(SOLVER), want[-1], f) for f in (rig.fed, ended(Ditto(SOLVER)))]
    assert torch.equal(scores[0].loss, scores[1].loss)


@pytest.mark.row(28, counts="strangers and keys")
def test_a_name_that_is_not_the_keys_is_refused(tmp_path: Path) -> None:
    from coterie.engines.flower.exchange import Exchange

    rig = Rig(tmp_path)
    names = {node: owner.name for node, owner in rig.grid.owners.items()} | {103: "someone"}
    exchange = Exchange(rig.grid, tell=rig.events.append, registered=lambda: names)
    exchange.look()
    exchange.collect()
    assert set(exchange.clients) == {"0", "1", "2", "4", "5", "6", "7"}
    assert "its key belongs to someone" in rig.said("refused")[0]["why"]
    assert [to for to, kind in rig.grid.sent if kind == "query.away"] == ["3"]


@pytest.mark.row(28, counts="strangers and keys")
def test_a_node_whose_key_we_did_not_register_is_told_nothing(tmp_path: Path) -> None:
    from coterie.engines.flower.exchange import Exchange

    rig = Rig(tmp_path)
    rig.grid.sent.clear()
    exchange = Exchange(rig.grid, tell=rig.events.append, registered=lambda: {103: "3"})
    exchange.look()
    exchange.collect()
    exchange.look()
    assert set(exchange.clients) == {"3"}  # the one that is listed
    assert {to for to, _ in rig.grid.sent} == {"3"}
    refused = rig.said("refused")
    assert [e["node"] for e in refused] == ["100", "101", "102", "104", "105", "106", "107"]
    assert {e["why"] for e in refused} == {"this server did not register its key"}


def test_a_client_hears_why_it_is_not_wanted(tmp_path: Path) -> None:
    from flwr.app import Context

    from coterie.engines.flower.client import client_app

    heard: list[str] = []
    away = RecordDict({"away": ConfigRecord({"why": "nobody\x1b[2J expects it"})})
    message = Message(away, dst_node_id=1, message_type="query.away")
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})
    client_app(lambda c: (None, tmp_path), heard.append)(message, context)  # type: ignore[arg-type,return-value]
    assert heard == ["nobody?[2J expects it"]


@pytest.mark.row(17)
def test_an_answer_that_was_too_large_is_refused_and_not_asked_for_again(tmp_path: Path) -> None:
    from flwr.app import Error

    from coterie.engines.flower.inbox import REFUSED

    rig = Rig(tmp_path)
    push = rig.grid.push

    def large(message: Message) -> str:
        key = push(message)
        if rig.grid.sent[-1] == ("5", "train.task"):
            rig.grid.replies[key] = [Message(Error(REFUSED, "it is larger"), reply_to=message)]
        return key

    rig.grid.push = large  # type: ignore[method-assign]
    states(FedAvg(SOLVER), rig.fed, 1)
    assert rig.grid.sent.count(("5", "train.task")) == 1
    assert next(a.rejected for a in rig.fed.ledger if a.rejected) == {5: "it is larger"}


def test_a_question_of_another_format_is_refused() -> None:
    from coterie.engines.flower import messages
    from coterie.engines.flower.validate import RefusedError

    head = ConfigRecord({"format": 99})
    with pytest.raises(RefusedError, match="format 99"):
        messages.asked(RecordDict({"question": head, "sent": ArrayRecord()}))
