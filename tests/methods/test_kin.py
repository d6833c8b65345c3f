"""kin: nothing is done that the clients' own samples do not speak for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from coterie.core.client import Client
from coterie.core.layout import Layout
from coterie.core.loop import evaluate, run
from coterie.core.rng import stream
from coterie.core.types import Replies, State
from coterie.engines.front import Front
from coterie.methods.fedavg import FedAvg
from coterie.methods.kin import TRIES, Kin
from coterie.methods.moving import PEERS, Wishes, pulls
from coterie.methods.regrouping import dealt, divided, mean_model, trial, united
from coterie.tasks import Gains, Score, Solver, Train, VerifiedScore
from coterie.tasks.halves import folds, halves
from coterie.tasks.steps import Forward, Stepwise, run_single
from coterie.words.grouping import clear, verified_groups
from coterie.words.grouping.verified import spread
from coterie.words.mixing import merge
from tests.methods.planted import groups_of
from tests.tiny import CLASSES, client, federation, network

SOLVER = Solver(lr=0.1, batch=8, epochs=3)
SAMPLES = 48


def people(groups: list[int]) -> list[Client]:
    """Clients of equal size whose labels are turned by their group."""
    return [turned(client(i, len(groups), 1, SAMPLES), g) for i, g in enumerate(groups)]


def turned(c: Client, by: int) -> Client:
    return replace(c, y=(c.y + by) % CLASSES, y_test=(c.y_test + by) % CLASSES)


def among(groups: list[int], seed: int = 7) -> Front:
    return Front(people(groups), Layout(network()), classes=CLASSES, seed=seed)


def last(method: Any, fed: Front, rounds: int) -> State:
    *_, state = run(method, fed, rounds)
    return state


# -- the identities


def test_among_clients_that_are_alike_it_is_fedavg_to_the_bit() -> None:
    for seed in range(3):
        state = last(Kin(SOLVER), among([0] * 8, seed), 5)
        alone = last(FedAvg(SOLVER, fraction=1.0), among([0] * 8, seed), 5)
        assert state.k == 1
        assert torch.equal(state.models, alone.models)


def test_planted_groups_are_found_and_stay() -> None:
    truth = [0] * 4 + [1] * 4 + [2] * 4
    for seed in range(3):
        assert {tuple(groups_of(s)) for s in run(Kin(SOLVER), among(truth, seed), 6)} == {
            tuple(truth)
        }


def test_who_left_the_finite_numbers_in_the_warm_up_is_placed_and_tested_all_the_same() -> None:
    fed = among([0, 0, 0, 0, 1, 1, 1, 1, 0])
    those = [*fed.population]
    those[8] = replace(those[8], x=1e15 * those[8].x)  # its training overflows
    fed.population = those
    state = last(Kin(SOLVER), fed, 2)
    assert groups_of(state)[:8] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert not len(state.unplaced)
    assert {i for asked in fed.ledger for i in asked.rejected} == {8}, "it trains in vain"
    assert 8 in evaluate(Kin(SOLVER), state, fed).clients


def test_ledger_says_what_it_costs() -> None:
    fed = among([0] * 4 + [1] * 4)
    last(Kin(SOLVER, look=0, rise=1000.0), fed, 3)
    head = len(fed.layout.initial[fed.layout.columns("head")])
    first, *rest = fed.ledger
    assert first.task == "TrainHalves"
    assert (first.up == 4 * 2 * head).all()
    assert {a.task for a in rest} == {"Train"}
    assert all((a.up == 4 * fed.layout.size + 4).all() for a in rest)  # and the loss before


# -- who moves


def drifted(fed: Front, changes: dict[int, int]) -> None:
    """These clients' labels are turned on from now on."""
    fed.population = [
        turned(c, changes[i]) if i in changes else c for i, c in enumerate(fed.population)
    ]


@pytest.mark.parametrize("look", [0, 2])
def test_who_drifts_to_another_cluster_is_there_a_round_later(look: int) -> None:
    fed = among([0] * 4 + [1] * 4)
    for state in run(Kin(SOLVER, look=look), fed, 9):
        if state.round == 6:
            assert groups_of(state) == [0] * 4 + [1] * 4
            drifted(fed, {0: 1, 7: -1})
        if state.round == 8:
            assert state.assign.tolist() == [1, 0, 0, 0, 1, 1, 1, 0]


def test_at_low_participation_too_everybody_is_right_again() -> None:
    truth = [0] * 6 + [1] * 6
    fed = among(truth)
    for state in run(Kin(SOLVER, fraction=0.3), fed, 24):
        if state.round == 8:
            assert groups_of(state) == truth
            drifted(fed, {0: 1, 11: -1})
    assert state.assign.tolist() == [1, *truth[1:-1], 0]


def test_who_moves_does_not_train_the_cluster_it_leaves() -> None:
    fed = among([0] * 4 + [1] * 4)
    method = Kin(SOLVER, look=0)
    state = last(method, fed, 6)
    drifted(fed, {0: 1})
    after = method.round(state, fed.at(6))
    assert after.assign.tolist() == [1, 0, 0, 0, 1, 1, 1, 1]
    others = torch.arange(1, 8)
    w = fed.at(6).ask(others, Train(SOLVER, report=("before",)), state)
    assert torch.equal(after.models, merge(state, w).models)


def ahead(fed: Front, truth: list[int]) -> State:
    """Two clusters, of which the second has not begun yet to learn, and the first is further."""
    state = last(Kin(SOLVER, look=0), among([0] * 4), 4)
    models = torch.stack([state.models[0], fed.layout.initial])
    return State(
        models,
        torch.tensor(truth),
        memory={"fit": torch.full((len(truth),), torch.inf, dtype=torch.float64)},
    )


def wishing(method: Kin, state: State, fed: Front, clients: list[int]) -> Wishes:
    those = torch.tensor(clients)
    return method.better_off(state, those, 1 - state.assign[those, None], fed)


def reporting(fed: Front, state: State, clients: Tensor) -> Replies:
    return fed.ask(clients, Train(SOLVER, report=("before",)), state)


def test_nobody_leaves_for_a_model_that_is_only_ahead() -> None:
    """Its peers would gain as much by it."""
    fed, method = among([0] * 8), Kin(SOLVER)
    state = ahead(fed, [0] * 4 + [1] * 4)
    wishes = wishing(method, state, fed, [4, 5])
    assert wishes.clients.tolist() == [4, 5], "it does save them something"
    w = reporting(fed, state, fed.clients)
    assert not len(method.apart(state, wishes, w, fed).clients)


def test_who_gains_more_than_its_peers_leaves() -> None:
    fed, method = among([0] * 4 + [1] * 4), Kin(SOLVER)
    state = ahead(fed, [0] * 4 + [1] * 4)
    drifted(fed, {5: -1})
    w = reporting(fed, state, fed.clients)
    apart = method.apart(state, wishing(method, state, fed, [5]), w, fed)
    assert (apart.clients.tolist(), apart.target.tolist()) == ([5], [0])


def test_where_no_peer_is_drawn_a_loss_that_has_risen_speaks() -> None:
    fed, method = among([0] * 8), Kin(SOLVER)
    state = ahead(fed, [0] * 4 + [1] * 4)
    wishes, w = wishing(method, state, fed, [4]), reporting(fed, state, torch.tensor([0, 1, 4]))
    loss = float(w.extra["before"][2])
    for least, goes in ((torch.inf, []), (loss, []), (0.95 * loss, []), (0.8 * loss, [4])):
        known = state.hold(fit=state.memory["fit"].index_fill(0, torch.tensor([4]), least))
        assert method.apart(known, wishes, w, fed).clients.tolist() == goes


def test_who_is_alone_in_a_cluster_is_held_back_by_nobody() -> None:
    fed, method = among([0] * 5), Kin(SOLVER)
    state = ahead(fed, [0] * 4 + [1])
    w = reporting(fed, state, fed.clients)
    assert method.apart(state, wishing(method, state, fed, [4]), w, fed).clients.tolist() == [4]


def test_few_peers_are_asked_and_nobody_who_would_leave_as_well() -> None:
    fed = Overheard(people([0] * 20), Layout(network()), classes=CLASSES, seed=7)
    method = Kin(SOLVER)
    state = ahead(fed, [0] * 4 + [1] * 16)
    wishes = wishing(method, state, fed, [4, 9, 12])
    method.apart(state, wishes, reporting(fed, state, fed.clients), fed)
    assert len(fed.sent) == PEERS
    assert fed.sent.keys() <= {*range(4, 20)} - {4, 9, 12}
    for rows in fed.sent.values():
        assert torch.equal(rows, state.models[[1, 0]])


def test_pulls_point_to_the_model_that_training_led_to() -> None:
    models = torch.eye(4)
    state = State(models, torch.tensor([0, 0, 1]))
    on_the_way = models[0] + 0.1 * (models[2] - models[0])
    away = models[1] - 0.1 * (models[3] - models[1])
    rows = torch.stack([on_the_way, models[0], away])
    pull = pulls(state, Replies(torch.arange(3), rows, torch.ones(3)))
    assert pull[0].tolist() == pytest.approx([0, 0.5, 1, 0.5])
    assert pull[1].tolist() == [0, 0, 0, 0]  # who learned nothing is pulled nowhere
    assert pull[2].tolist() == pytest.approx([-0.5, 0, -0.5, -1])


def test_who_tries_is_sent_few_models_and_not_again_for_the_same_pull() -> None:
    fed = among([i // 3 for i in range(12)])
    state = last(Kin(SOLVER, look=0), fed, 4)
    assert state.k == 4
    drifted(fed, {0: 1})
    method = Kin(SOLVER, look=0, firm=1e9)  # nothing is ever firm enough
    tried = []
    for t in range(4, 10):
        fed.ledger.clear()
        state = replace(method.round(state, fed.at(t)), round=t + 1)
        tried += [a for a in fed.ledger if a.task == "Gains"]
    model = 4 * fed.layout.size
    assert all((a.down <= (1 + TRIES) * model).all() for a in tried)
    times = sum(int((a.clients == 0).sum()) for a in tried)
    assert 1 <= times < 4
    assert state.assign.tolist() == [i // 3 for i in range(12)]


def test_strangers_of_one_kind_leave_together() -> None:
    fed = among([0] * 8)
    for state in run(Kin(SOLVER, look=0), fed, 9):
        if state.round == 5:
            assert state.k == 1
            drifted(fed, dict.fromkeys((1, 4, 6), 2))
    assert groups_of(state) == [0, 1, 0, 0, 1, 0, 1, 0]


def test_who_was_not_drawn_is_as_it_was() -> None:
    fed = among([0] * 4 + [1] * 4)
    states = list(run(Kin(SOLVER, fraction=0.4, look=0), fed, 4))
    for before, after, asked in zip(states[:-1], states[1:], fed.ledger[1:], strict=True):
        away = torch.ones(8, dtype=torch.bool).index_fill(0, asked.clients, False)
        for name in ("fit", "vain", "signature"):
            assert torch.equal(before.memory[name][away], after.memory[name][away])


# -- which clusters there are


def noisy(i: int) -> Client:
    """A client whose few samples alone do not tell much."""
    c = client(i, 12, 1, samples=16)
    return replace(c, x=c.x + 8 * torch.randn(c.x.shape, generator=stream(0, "noise", i)))


def test_two_clusters_of_one_kind_become_one() -> None:
    unclear = [noisy(i) for i in range(12)]
    fed = Front(unclear, Layout(network()), classes=CLASSES, seed=7)
    method = Kin(SOLVER, look=1)
    state = method.init(fed.at(-1))
    state = state.regroup(fed.clients, torch.arange(12) % 2, fed.layout.initial)
    for t in range(3):
        state = replace(method.round(state, fed.at(t)), round=t + 1)
    assert state.k == 1
    assert (state.assign == 0).all()


def test_a_cluster_of_two_kinds_is_divided() -> None:
    truth = [0, 1] * 4
    fed = among(truth)
    method = Kin(SOLVER, look=1)
    state = method.init(fed.at(-1))
    state = state.regroup(fed.clients, torch.zeros(8, dtype=torch.long), fed.layout.initial)
    for t in range(3):
        state = replace(method.round(state, fed.at(t)), round=t + 1)
    assert groups_of(state) == truth


def trained(fed: Front) -> Replies:
    start = State.shared(fed.layout.initial, len(fed.clients))
    return fed.at(0).ask(fed.clients, Train(SOLVER), start)


def test_trials_tell_groups_from_chance() -> None:
    apart, alike = among([0, 1] * 4), among([0] * 8)
    labels = torch.arange(8) % 2
    real = trial(trained(apart), labels, SOLVER, apart.at(0))
    chance = trial(trained(alike), labels, SOLVER, alike.at(0))
    assert real is not None
    assert chance is not None
    assert real.sure > 2
    assert real.least > 0.05
    assert chance.sure < 2


class Overheard(Front):
    """A federation that notes how clients compare models, and those they are sent for it."""

    asked: Gains
    sent: dict[int, Tensor]

    def ask(self, cohort: Tensor, task: Any, state: State, **send: Tensor) -> Replies:
        if isinstance(task, Gains):
            rows = torch.cat([state.of(cohort)[:, None], send["others"]], 1)
            self.asked, self.sent = task, dict(zip(cohort.tolist(), rows, strict=True))
        return super().ask(cohort, task, state, **send)


def test_nobody_judges_a_model_it_trained_itself() -> None:
    fed = Overheard(people([0, 1] * 4), Layout(network()), classes=CLASSES, seed=7)
    labels = torch.arange(8) % 2
    w = trained(fed)
    trial(w, labels, SOLVER, fed)
    before = fed.sent
    for i in range(8):
        values = w.values.clone()
        values[i] += 1
        trial(replace(w, values=values), labels, SOLVER, fed)
        assert torch.equal(before[i], fed.sent[i])
        assert any(not torch.equal(before[j], fed.sent[j]) for j in range(8))


def test_groups_are_judged_by_models_tuned_as_they_are_used() -> None:
    fed = Overheard(people([0, 1] * 4), Layout(network()), classes=CLASSES, seed=7)
    method, labels = Kin(SOLVER, tune_epochs=4), torch.arange(8) % 2
    w, clients = trained(fed), fed.clients
    method.divide(State.shared(fed.layout.initial, 8), 0, w, labels, fed)
    assert (fed.asked.adapt, fed.asked.train) == (method.score.adapt, method.score.train)
    two = State(torch.stack([w.values[0], w.values[1]]), labels)
    method.unite(two, two, w, fed)
    assert fed.asked.adapt == method.score.adapt
    method.better_off(two, clients, 1 - labels[:, None], fed)
    assert fed.asked.adapt == replace(SOLVER, epochs=1)  # who moves compares what it is sent


def test_division_and_union_move_rows_and_labels_together() -> None:
    state = State(torch.arange(6.0).view(3, 2), torch.tensor([0, 1, 2, 1, 0, 1]))
    w = Replies(torch.tensor([1, 3, 5]), torch.tensor([[8.0, 0], [4, 0], [2, 0]]), torch.ones(3))
    parted = divided(state, 1, w, torch.tensor([0, 1, 1]))  # the larger group keeps the number
    assert parted.models.tolist() == [[0, 1], [3, 0], [4, 5], [8, 0]]
    assert parted.assign.tolist() == [0, 3, 2, 1, 0, 1]
    whole = united(parted, 1, 3, torch.tensor([9.0, 9]))
    assert whole.models.tolist() == [[0, 1], [9, 9], [4, 5]]
    assert whole.assign.tolist() == state.assign.tolist()
    assert united(parted, 0, 2, torch.zeros(2)).assign.tolist() == [0, 2, 0, 1, 0, 1]
    sizes = torch.tensor([1.0, 1, 3, 1, 0, 1])
    assert mean_model(state, 0, 2, sizes).tolist() == [3, 4]


def test_folds_are_even_in_every_group() -> None:
    labels = torch.tensor([0, 1, 1, 0, 2, 1, 2, 1, 0])
    fold = dealt(labels, torch.Generator().manual_seed(3))
    for s in range(3):
        counts = fold[labels == s].bincount(minlength=2)
        assert int(counts[0] - counts[1]) in (0, 1)


# -- groups that hold on the other half


def test_the_spread_about_peers_by_hand() -> None:
    rng = torch.Generator().manual_seed(0)
    x, labels = torch.randn(7, 3, generator=rng).double(), torch.tensor([0, 1, 0, 1, 1, 0, 2])
    for i, found in enumerate(spread(x, labels).tolist()):
        peers = [j for j in range(7) if j != i and labels[j] == labels[i]]
        peers = peers or [j for j in range(7) if j != i]
        expected = float((x[i] - x[peers].mean(0)).square().sum())
        assert found == pytest.approx(expected)


def test_noise_holds_no_groups_and_groups_hold() -> None:
    rng = torch.Generator().manual_seed(1)
    found = []
    for _ in range(20):
        a, b = torch.randn(2, 20, 30, generator=rng)
        found.append(verified_groups(a, b))
    assert max(f.gain for f in found) < 0.05
    centres = torch.randn(4, 30, generator=rng).repeat_interleave(5, 0)
    a, b = centres + 0.7 * torch.randn(2, 20, 30, generator=rng)
    clear_ones = verified_groups(a, b)
    assert clear_ones.labels.tolist() == [0] * 5 + [1] * 5 + [2] * 5 + [3] * 5
    assert clear_ones.gain > 0.2
    assert clear_ones.sure > 2
    assert clear_ones.peers < 1
    # Everybody of its own kind: a client's own other half tells more than its peers do.
    own = torch.randn(20, 30, generator=rng)
    assert verified_groups(own + 0.01, own).peers > 1


def test_the_halves_are_exchangeable_and_clients_have_no_order() -> None:
    rng = torch.Generator().manual_seed(2)
    centres = torch.randn(3, 8, generator=rng).repeat(4, 1)
    a, b = centres + 0.4 * torch.randn(2, 12, 8, generator=rng)
    one, other = verified_groups(a, b), verified_groups(b, a)
    assert torch.equal(one.labels, other.labels)
    assert (one.gain, one.peers) == pytest.approx((other.gain, other.peers))
    order = torch.randperm(12, generator=rng)
    again = verified_groups(a[order], b[order])
    same = one.labels[:, None] == one.labels
    assert torch.equal(again.labels[:, None] == again.labels, same[order][:, order])
    assert again.gain == pytest.approx(one.gain)


def test_few_clients_have_no_groups() -> None:
    for n in (1, 2, 3):
        x = torch.eye(n)
        assert verified_groups(x, x).k == 1
    assert clear(torch.zeros(5)) == 0


# -- the tasks


def test_halves_are_disjoint_and_all() -> None:
    c = client(0, 4, samples=9)
    even, odd = halves(c)
    assert sorted([*even.x[:, 0].tolist(), *odd.x[:, 0].tolist()]) == sorted(c.x[:, 0].tolist())
    assert len(even) == 5
    single = replace(c, x=c.x[:1], y=c.y[:1])
    assert all(len(half) == 1 for half in halves(single))


@pytest.mark.parametrize("samples", [1, 3, 5, 13])
def test_each_sample_is_left_out_by_one_fold(samples: int) -> None:
    c = client(0, 4, samples=samples)
    parts = list(folds(c, 5))
    assert len(parts) == min(5, samples)
    unseen = [x for _, part in parts for x in part.x[:, 0].tolist()]
    assert sorted(unseen) == sorted(c.x[:, 0].tolist())
    for seen, left in parts:
        both = [*seen.x[:, 0].tolist(), *left.x[:, 0].tolist()]
        assert sorted(both) == sorted(c.x[:, 0].tolist())


def test_halves_sent_along_leave_the_training_as_it_is() -> None:
    fed = federation()
    state = State.shared(fed.layout.initial, 8)
    alone = fed.at(0).ask(fed.clients, Train(SOLVER), state)
    both = fed.at(0).ask(fed.clients, Train(SOLVER, report=("halves",)), state)
    head = fed.layout.initial[fed.layout.columns("head")]
    assert torch.equal(alone.values, both.values)
    assert both.extra["halves"].shape == (8, 2, len(head))
    assert (both.extra["halves"][:, 0] != both.extra["halves"][:, 1]).any(1).all()
    once, thrice = (a.samples for a in fed.ledger[-2:])
    assert thrice == 3 * once


def test_gains_are_paired_differences_of_losses() -> None:
    fed = federation()
    others = torch.stack([fed.layout.initial + shift for shift in (0.3, 0.0, -0.2)])
    state = State.shared(fed.layout.initial, 8)
    r = fed.at(0).ask(fed.clients, Gains(), state, others=others[None])
    for i, person in enumerate(fed.population):
        lost = [
            torch.nn.functional.cross_entropy(
                fed.layout.predict(row, person.x).double(), person.y, reduction="none"
            )
            for row in (fed.layout.initial, *others)
        ]
        for j in range(3):
            d = lost[0] - lost[j + 1]
            assert r.values[i, j].tolist() == pytest.approx(
                [float(d.mean()), float(d.std() / len(d) ** 0.5)], abs=1e-9
            )
        assert float(r.extra["loss"][i]) == pytest.approx(float(lost[0].mean()))
    assert (r.values[:, 1] == 0).all()  # oneself


def test_tuning_is_not_used_where_it_does_harm_to_what_it_did_not_see() -> None:
    fed = federation(groups=1, people=people([0] * 8))
    good = last(FedAvg(SOLVER, fraction=1.0), fed, 12)
    wild = replace(SOLVER, lr=30.0)
    spoiling = fed.at(0, "evaluate").ask(fed.clients, VerifiedScore(wild, train="head"), good)
    kept = (spoiling.values[:, 0] == spoiling.values[:, 1]).all(1)
    assert kept.sum() >= 6  # by chance even this may help somebody
    start = State.shared(fed.layout.initial, 8)
    helping = fed.at(0, "evaluate").ask(fed.clients, VerifiedScore(SOLVER, train="head"), start)
    assert (helping.values[:, 1, 1] < helping.values[:, 0, 1]).all()


def test_tuning_is_judged_by_nearly_all_of_what_it_is_used_with() -> None:
    fed = federation()
    c = client(0, 4, samples=40)
    alternating = replace(c, y=torch.arange(40) % 2, x=c.x + 4 * (torch.arange(40) % 2)[:, None])
    start = fed.layout.initial
    tuning = VerifiedScore(replace(SOLVER, epochs=20), train="head")
    row, tuned = run_single(
        tuning.rows(alternating, start, fed.layout, stream(0, "tuning")), fed.layout
    )
    assert not torch.equal(row, tuned)  # of a half, each of which has one label, nothing is learned


@pytest.mark.parametrize(
    ("after", "helps"),
    [
        ([2.0, 1.0, 0.0], True),  # (how sure of the right label each sample is, wrong below 0)
        ([2.0, -1.0, -1.0], True),  # one gains
        ([1.5, -2.0, -1.0], True),  # more is lost than gained, but not clearly
        ([1.0, -2.0, -2.0], False),  # clearly more is lost
        ([0.1, -1.5, -1.5], False),
        ([1.0, -1.0, -1.0], False),  # the same: the model stays as it came
        ([torch.nan] * 3, False),
    ],
)
def test_tuning_is_used_unless_it_does_clear_harm(after: list[float], helps: bool) -> None:
    c = client(0, 4, samples=3)
    c = replace(c, x=torch.arange(3.0)[:, None], y=torch.zeros(3, dtype=torch.long))
    said = {0: torch.tensor([1.0, -1.0, -1.0]), 1: torch.tensor(after)}
    asked = VerifiedScore(SOLVER).helps(torch.zeros(1), c, SOLVER, stream(0, "tuning"))
    assert decided(asked, said) is helps


@pytest.mark.parametrize(("right", "helps"), [(6, True), (5, False)])
def test_tuning_by_which_clearly_fewer_are_right_is_not_used_though_it_loses_less(
    right: int, helps: bool
) -> None:
    """Early in training: less is lost on what stays right, and more goes wrong."""
    c = client(0, 4, samples=10)
    c = replace(c, x=torch.arange(10.0)[:, None], y=torch.zeros(10, dtype=torch.long))
    after = torch.tensor([3.0] * right + [-0.1] * (10 - right))
    said = {0: torch.tensor([0.1] * 7 + [-3.0] * 3), 1: after}
    asked = VerifiedScore(SOLVER).helps(torch.zeros(1), c, SOLVER, stream(0, "tuning"))
    assert decided(asked, said) is helps


def test_who_is_refused_long_tuning_tunes_for_one_epoch() -> None:
    fed = federation()
    c, start = client(0, 4, samples=40), fed.layout.initial
    asked = Never(replace(SOLVER, epochs=7), train="head")
    rng, again = stream(0, "tuning"), stream(0, "tuning")
    row, tuned = run_single(asked.rows(c, start, fed.layout, rng), fed.layout)
    run_single(Score(asked.adapt, train="head").rows(c, start, fed.layout, again), fed.layout)
    little = Score(replace(SOLVER, epochs=1), train="head")
    _, expected = run_single(little.rows(c, start, fed.layout, again), fed.layout)
    assert torch.equal(row, start)
    assert torch.equal(tuned, expected)
    assert not torch.equal(tuned, start)


def test_an_epoch_of_tuning_that_loses_more_on_its_own_samples_is_not_used() -> None:
    fed = federation()
    c, start = client(0, 4, samples=40), fed.layout.initial
    wild = Never(replace(SOLVER, lr=1e4), train="head")
    row, tuned = run_single(wild.rows(c, start, fed.layout, stream(0, "tuning")), fed.layout)
    assert torch.equal(tuned, row)


class Never(VerifiedScore):
    """A check that nothing passes."""

    def helps(self, *about: object) -> Stepwise[bool]:
        """No."""
        yield from ()
        return False


def decided(steps: Stepwise[bool], said: dict[int, Tensor]) -> bool:
    """What comes of steps that train model 0 into model 1, each being as sure of labels as said."""
    answer: Any = None
    try:
        while True:
            work = steps.send(answer)
            if isinstance(work, Forward):
                sure = said[int(work.row)][work.x[:, 0].long()]
                answer = torch.stack([sure, torch.zeros_like(sure)], 1)
            else:
                answer = torch.ones(1), 1
    except StopIteration as end:
        return bool(end.value)
