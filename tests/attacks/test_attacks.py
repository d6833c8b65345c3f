"""Attacks: who is hostile, what such a client trains on and sends, and what is recorded of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import torch

import coterie as ct
from coterie import report
from coterie.attacks.attack import STRENGTH, Attack
from coterie.attacks.attackers import Attackers, attackers
from coterie.attacks.data import Poisoned
from coterie.attacks.replies import Hostile
from coterie.cli import progress
from coterie.cli.train import doubts
from coterie.config import loads, resolved
from coterie.core.errors import CheckpointError, ConfigError
from coterie.core.loop import run
from coterie.core.types import State
from coterie.core.units import percent
from coterie.engines.front import Front
from coterie.methods import METHODS
from coterie.report import verdict
from coterie.studies.remote import federation as federations
from coterie.studies.run.started import refuse_changes
from coterie.tasks import Gains
from coterie.words.server import ServerOptimiser
from tests.test_contract import ROUNDS, last, method
from tests.tiny import federation, pooled, same, stacked

KINDS = [kind for kind in STRENGTH if kind != "none"]
PEOPLE = ct.partition("digits", "rotation:0,90", clients=10, seed=1)


# -- who


def test_every_kind_has_a_strength() -> None:
    kinds = get_args(get_type_hints(Attack, include_extras=True)["kind"])
    assert set(kinds) == set(STRENGTH)


def test_as_many_are_drawn_from_every_group_and_others_with_another_seed() -> None:
    found = {attackers(Attack(kind="sign-flip", share=0.4), PEOPLE, seed).who for seed in range(5)}
    assert len(found) > 1
    for who in found:
        assert PEOPLE.group is not None
        assert PEOPLE.group[list(who)].bincount().tolist() == [2, 2]


def test_who_captures_a_cluster_comes_from_another() -> None:
    attack = Attack(kind="cluster-capture", share=0.3, target=1)
    assert PEOPLE.group is not None
    assert PEOPLE.group[list(attackers(attack, PEOPLE, 0).who)].tolist() == [0, 0, 0]


def test_clients_can_be_named() -> None:
    assert attackers(Attack(kind="scaling", clients=("7", "2")), PEOPLE, 0).who == (2, 7)


@pytest.mark.parametrize(
    ("attack", "said"),
    [
        (Attack(kind="scaling", clients=("12",)), "no client 12"),
        (Attack(kind="scaling", share=0.99), "every client"),
        (Attack(kind="scaling", share=0.04), "no client"),
        (Attack(kind="cluster-capture", target=2), "no planted group 2"),
    ],
)
def test_an_attack_that_cannot_be_is_refused(attack: Attack, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        attackers(attack, PEOPLE, 0)
    assert caught.value.code == "C085"


# -- on data


def poisoned(**attack: Any) -> Poisoned:
    them = attackers(Attack(**attack), PEOPLE, 0)
    return Poisoned(PEOPLE, them, 0)


def test_flipped_labels_are_those_of_attackers_in_training_alone() -> None:
    people = poisoned(kind="label-flip", clients=("1", "4"))
    for i, (bad, good) in enumerate(zip(people, PEOPLE, strict=True)):
        assert torch.equal(bad.y, 9 - good.y if i in (1, 4) else good.y)
        assert torch.equal(bad.x, good.x)
        assert torch.equal(bad.y_test, good.y_test)
    assert people.key != PEOPLE.key
    assert torch.equal(people.sizes, PEOPLE.sizes)


def test_some_labels_are_flipped_where_the_strength_is_below_one() -> None:
    people = poisoned(kind="label-flip", clients=("1",), strength=0.5)
    flipped = (people[1].y != PEOPLE[1].y).float().mean()
    assert 0.3 < flipped < 0.7


@pytest.mark.parametrize(("start", "before", "since"), [(1, (), (-1, 0, 5)), (4, (-1, 2), (3, 9))])
def test_labels_are_flipped_from_the_start_round_on(
    start: int, before: tuple[int, ...], since: tuple[int, ...]
) -> None:
    people = poisoned(kind="label-flip", clients=("1",), start=start)
    for round in before:
        assert torch.equal(people.at(round)[1].y, PEOPLE[1].y)
    for round in since:
        assert torch.equal(people.at(round)[1].y, 9 - PEOPLE[1].y)


def test_who_captures_a_cluster_has_samples_of_an_honest_member_of_it() -> None:
    people = poisoned(kind="cluster-capture", clients=("0", "1"), target=1)
    for i in (0, 1):
        assert len(people[i]) == len(PEOPLE[i])
        other = PEOPLE[people.imitated(i)]
        found = (people[i].x.flatten(1)[:, None] == other.x.flatten(1)[None]).all(2)
        assert found.any(1).all()
        assert PEOPLE.group is not None
        assert PEOPLE.group[people.imitated(i)] == 1
        assert torch.equal(people[i].x_test, PEOPLE[i].x_test)


def test_attackers_of_clients_that_drift_stay_attackers() -> None:
    drifting = ct.partition("digits", "rotation:0,90+drift:3,0.5", clients=8, seed=1)
    people = Poisoned(drifting, Attackers(Attack(kind="label-flip"), (0, 1, 2, 3)), 0)
    for round in (0, 5):
        for i in (0, 1, 2, 3):
            assert torch.equal(people.at(round)[i].y, 9 - drifting.at(round)[i].y)


# -- on replies


def under(attack: Attack, fed: Front, who: tuple[int, ...] = (1, 6)) -> Front:
    fed.backend = Hostile(fed.backend, Attackers(attack, who))
    return fed


def ended(name: str, attack: Attack) -> State:
    return last(run(method(name), under(attack, federation()), ROUNDS))


@pytest.mark.parametrize("name", METHODS)
def test_who_sends_back_what_it_was_sent_is_like_one_that_learns_nothing(name: str) -> None:
    """So the model that an update starts from is known for every task of every method."""
    made: Any = method(name)
    slow = {"solver": replace(made.solver, lr=1e-12)}
    slow |= {"head_lr": 1e-12} if hasattr(made, "head_lr") else {}
    still = replace(made, **slow)
    honest = last(run(still, federation(), ROUNDS))
    riders = last(run(still, under(Attack(kind="free-rider"), federation()), ROUNDS))
    torch.testing.assert_close(riders.models, honest.models, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_a_hostile_answer_reaches_every_method_that_hears_models(name: str) -> None:
    honest = last(run(method(name), federation(), ROUNDS))
    flipped = ended(name, Attack(kind="sign-flip", strength=2.0))
    assert same(flipped, honest) == (name == "local")


def test_a_free_rider_sends_what_it_was_sent() -> None:
    fed = under(Attack(kind="free-rider"), federation(), (1,))
    state = next(run(method("fedavg"), fed, 1))
    w = fed.at(0).ask(torch.arange(3), ct.Train(), state)
    assert torch.equal(w.values[1], state.models[0])
    assert not torch.equal(w.values[0], state.models[0])


@pytest.mark.parametrize("lies", [False, True])
def test_who_lies_says_of_every_other_model_that_it_loses_nothing(lies: bool) -> None:
    attack = Attack(kind="cluster-capture", lies=lies)
    fed, honest = under(attack, federation(), (1,)), federation()
    state = next(run(method("fedavg"), honest, 1))
    others = torch.stack([state.models[0] + 1, state.models[0] - 1]).expand(3, 2, -1)
    said, true = (
        f.at(0).ask(torch.arange(3), Gains(), state, others=others) for f in (fed, honest)
    )
    assert torch.equal(said.values[[0, 2]], true.values[[0, 2]])
    want = torch.stack([said.extra["loss"][1].expand(2), torch.zeros(2)], 1).double()
    assert torch.equal(said.values[1], want) is lies
    assert torch.equal(said.values[1], true.values[1]) is not lies


def test_before_the_start_and_in_tests_everybody_is_honest() -> None:
    late = under(Attack(kind="sign-flip", start=3), federation())
    honest = federation()
    everybody = method("fedavg", fraction=1.0)
    states = zip(run(everybody, late, 3), run(everybody, honest, 3), strict=True)
    assert [same(a, b) for a, b in states] == [True, True, True, False]


@pytest.mark.parametrize("kind", ["sign-flip", "free-rider"])
def test_worker_processes_give_the_bits_of_serial_under_attack(kind: Any) -> None:
    attack = Attack(kind=kind, strength=2.0)
    robust: Any = ct.FedAvg(ct.Solver(epochs=1), server=ServerOptimiser(merge="trimmed-mean"))
    truth = last(run(robust, under(attack, federation()), ROUNDS))
    with under(attack, pooled(federation())) as fed:
        assert same(last(run(robust, fed, ROUNDS)), truth)
    beside = last(run(robust, under(attack, federation(kind=stacked)), ROUNDS))
    torch.testing.assert_close(beside.models, truth.models, rtol=1e-4, atol=1e-5)


# -- in a run


def fitted(out: Path | None = None, rounds: int = 3, **how: Any) -> ct.Result:
    given: dict[str, Any] = {
        "server": ServerOptimiser(merge="trimmed-mean"),
        "attack": Attack(kind="sign-flip", clients=("1", "6")),
        **how,
    }
    solver = ct.Solver(lr=0.1, epochs=1)
    attack, m = given.pop("attack"), ct.FedAvg(solver, server=given.pop("server"))
    return ct.fit(m, PEOPLE, "mclr", rounds=rounds, out=out, attack=attack, page=False, **given)


def test_attackers_and_suspects_are_in_the_records(tmp_path: Path) -> None:
    heard: list[dict[str, Any]] = []
    result = fitted(tmp_path / "run", on_event=heard.append, engine="serial")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["attack"] == {"kind": "sign-flip", "clients": ["1", "6"]}
    assert [s["client"] for s in summary["suspects"]] == ["1", "6"]
    told = [e for e in heard if e["event"] in ("attack", "suspect")]
    assert [e.get("client", e.get("clients")) for e in told] == [["1", "6"], "1", "6"]
    names = [name for name in PEOPLE.names if name not in ("1", "6")]
    each = result.history.clients(3)
    honest = sum(each[name] for name in names) / len(names)
    assert summary["before"]["accuracy_honest"] == pytest.approx(honest)
    assert summary["before"]["accuracy_attackers"] == pytest.approx((each["1"] + each["6"]) / 2)


def test_page_and_command_line_name_attackers_and_suspects(tmp_path: Path) -> None:
    heard: list[dict[str, Any]] = []
    result = fitted(tmp_path / "run", on_event=heard.append, engine="serial")
    found = "\n".join(verdict.warnings(report.read(tmp_path / "run")))
    honest = percent(result.summary["before"]["accuracy_honest"])
    assert "Under attack (sign-flip from round 1 on) by 2 clients: 1, 6" in found
    assert f"honest clients {honest}" in found
    assert "Suspicious since round 3: client 6, its updates" in found
    said = [text for e in heard for text in (progress.warning(e), *progress.news(e)) if text]
    assert "attack  sign-flip from round 1 on by 1, 6" in said
    assert any(text.startswith("warning round 3: client 6: its updates") for text in said)
    labels = dict(doubts(result.summary))
    assert labels["suspect"] == "2 clients: 1, 6"
    assert honest in labels["attack"]


def test_a_cluster_that_was_not_merged_is_in_the_records(tmp_path: Path) -> None:
    heard: list[dict[str, Any]] = []
    server = ServerOptimiser(merge="multi-krum", byzantine=0.4)
    how: dict[str, Any] = {"server": server, "attack": None, "engine": "serial"}
    result = fitted(tmp_path / "run", on_event=heard.append, **how)
    assert result.summary["unmerged"] == 3
    (told,) = [e for e in heard if e["event"] == "unmerged"]
    assert (told["round"], told["cluster"], told["answers"], told["needed"]) == (1, 0, 10, 11)
    assert "cluster 0 keeps its model: 10 answered, and it takes 11" in progress.warning(told)
    assert dict(doubts(result.summary))["merge"].startswith("3 times")
    found = "\n".join(verdict.warnings(report.read(tmp_path / "run")))
    assert "Too few answers to withstand hostile ones" in found


@pytest.mark.parametrize("kind", ["label-flip", "cluster-capture"])
def test_poisoned_data_are_the_same_in_worker_processes(kind: Any) -> None:
    attack = Attack(kind=kind, share=0.2, start=2)
    how: dict[str, Any] = {"attack": attack, "rounds": 2, "server": ServerOptimiser()}
    serial, pool = (fitted(engine=name, workers=2, **how) for name in ("serial", "pool"))
    assert torch.equal(serial.state.models, pool.state.models)
    assert not torch.equal(serial.state.models, fitted(**how | {"attack": None}).state.models)


def test_a_run_in_two_halves_has_the_bytes_of_the_run_in_one(tmp_path: Path) -> None:
    fitted(tmp_path / "whole", 4, engine="serial")
    fitted(tmp_path / "halves", 2, engine="serial")
    fitted(tmp_path / "halves", 4, engine="serial", resume=True)
    for name in ("metrics.csv", "checkpoints/000004/state.safetensors"):
        assert (tmp_path / "halves" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    suspects = [
        json.loads((tmp_path / d / "summary.json").read_text())["suspects"]
        for d in ("whole", "halves")
    ]
    assert suspects[0] == suspects[1] != []


def test_a_run_goes_on_with_the_same_attackers_or_not_at_all(tmp_path: Path) -> None:
    flip = Attack(kind="label-flip", clients=("1",))
    fitted(tmp_path / "run", 1, attack=flip, engine="serial")
    with pytest.raises(CheckpointError, match="not the ones this run was started with"):
        fitted(tmp_path / "run", 2, attack=None, engine="serial", resume=True)


def test_without_an_attack_nothing_of_it_is_recorded(tmp_path: Path) -> None:
    result = fitted(attack=None, server=ServerOptimiser(), engine="serial", rounds=1)
    assert not {"attack", "suspects", "unmerged"} & result.summary.keys()
    assert "accuracy_honest" not in result.summary["before"]


# -- in an experiment file


def test_an_experiment_file_says_all_of_it() -> None:
    text = "[attack]\nkind = 'label-flip'\nclients = ['1', '2']\nstrength = 0.5\nstart = 3"
    want = Attack(kind="label-flip", clients=("1", "2"), strength=0.5, start=3)
    assert loads(text).attack == want == loads(resolved(loads(text))).attack


def test_a_run_from_before_there_were_attacks_goes_on() -> None:
    config = loads("")
    older, _, rest = resolved(config).partition("[attack]")
    older += "[engine]" + rest.partition("[engine]")[2]
    refuse_changes(older, config, ())
    with pytest.raises(CheckpointError, match="setting differs"):
        refuse_changes(older, loads("[attack]\nkind = 'scaling'"), ())


def test_a_server_makes_nobody_hostile() -> None:
    with pytest.raises(ConfigError, match="nobody's to make hostile"):
        federations.refuse_attack(loads("[attack]\nkind = 'scaling'"))
    federations.refuse_attack(loads(""))
