"""The five methods against the sentences of their papers."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from coterie.core.layout import Layout
from coterie.core.loop import evaluate, run
from coterie.core.rng import stream
from coterie.core.types import Replies, State, Task
from coterie.engines.front import Front
from coterie.methods.autocfl import AutoCFL
from coterie.methods.cflgt import CFLGT
from coterie.methods.dapfl import DAPFL
from coterie.methods.fedavg import FedAvg
from coterie.methods.fedclust import FedClust
from coterie.methods.feddsmic import FedDS, FedDSMIC, predictions
from coterie.methods.local import Local
from coterie.tasks.solver import Solver
from coterie.words.distance import forces
from tests.tiny import CLASSES, client, federation, network

SOLVER = Solver(lr=0.1, batch=8)


def end(method: object, fed: Front, rounds: int = 3) -> State:
    return list(run(method, fed, rounds))[-1]  # type: ignore[arg-type]


def equal_sizes(n: int = 8, groups: int = 2) -> Front:
    people = [client(i, n, groups, samples=24) for i in range(n)]
    return Front(people, Layout(network()), classes=CLASSES, seed=7)


# -- FedClust ----------------------------------------------------------------------------------


def test_fedclust_with_one_cluster_is_fedavg_to_the_bit() -> None:
    one = end(FedClust(SOLVER, 0.5, clusters=1), federation())
    assert torch.equal(one.models, end(FedAvg(SOLVER, 0.5), federation()).models)


def test_fedclust_with_a_cluster_each_is_local_to_the_bit() -> None:
    fed, alone = federation(), federation()
    each = end(FedClust(SOLVER, 0.5, clusters=8), fed)
    end(Local(SOLVER, 0.5), alone)
    for i in range(8):
        kept = alone.memory[i]["private"] if i in alone.memory else alone.layout.initial
        assert torch.equal(each.of(torch.tensor([i]))[0], kept)


def test_fedclusts_first_round_sends_the_last_layer_and_nothing_else() -> None:
    fed = federation()
    FedClust(SOLVER, warmup_epochs=1).init(fed.at(-1))
    (asked,) = fed.ledger
    head = len(fed.layout.initial[fed.layout.columns("head")])
    assert asked.up.tolist() == [4 * head] * 8
    assert asked.down.tolist() == [4 * fed.layout.size] * 8


def test_every_cluster_of_fedclust_starts_from_the_initial_model() -> None:
    fed = federation()
    state = FedClust(SOLVER).init(fed.at(-1))
    assert state.k == 2
    assert torch.equal(state.models, fed.layout.initial.repeat(2, 1))


def test_a_threshold_counts_its_own_value_as_near_enough() -> None:
    fed = federation()
    D = FedClust(SOLVER, threshold=1.0).init(fed.at(-1)).memory["distance"]
    nearest = float(D[~torch.eye(8, dtype=torch.bool)].min())
    counts = [
        FedClust(SOLVER, threshold=t).init(federation().at(-1)).k
        for t in (nearest * 0.999, nearest * 1.001)
    ]
    assert counts == [8, 7]


# -- CFLGT -------------------------------------------------------------------------------------


def test_the_forces_are_the_gradient_of_the_classifier() -> None:
    fed = federation()
    who, layout = fed.population[3], fed.layout
    net = layout.module(layout.initial).train()
    F.cross_entropy(net(who.x), who.y, reduction="sum").backward()
    features, logits = layout.features(layout.initial, who.x)
    pull, push = forces(features, logits.softmax(1), who.y)
    expected = net.get_submodule(str(layout.head_name)).weight.grad
    torch.testing.assert_close(push - pull, expected, rtol=1e-4, atol=1e-5)


def test_cflgt_uploads_two_numbers_per_class_for_the_clustering() -> None:
    fed = federation()
    end(CFLGT(SOLVER, 0.5, pretrain=1, hopkins=0.0), fed, 2)
    (asked,) = (a for a in fed.ledger if a.task == "Trajectory")
    assert asked.up.tolist() == [4 * 2 * CLASSES] * 8


def test_cflgt_asks_everybody_before_the_clustering_and_a_share_after_it() -> None:
    fed = federation()
    end(CFLGT(SOLVER, 0.25, pretrain=2), fed, 4)
    trained = [len(a.clients) for a in fed.ledger if a.task == "Train"]
    assert trained == [8, 8, 2, 2]


# -- AutoCFL -----------------------------------------------------------------------------------


def test_autocfl_trains_those_that_lag_behind_longer_and_the_largest_never() -> None:
    fed = federation()
    states = list(run(AutoCFL(SOLVER, latest=5), fed, 3))
    E = torch.stack([s.memory["epochs"] for s in states])
    largest = int(fed.sizes.argmax())
    assert (E.diff(dim=0) >= 0).all()
    assert (E[:, largest] == 1).all()
    assert E[-1].max() > 2


def test_adjusting_only_smaller_clients_leaves_equal_ones_alone() -> None:
    grown, alone = (
        list(run(AutoCFL(SOLVER, adjust=who), equal_sizes(), 3))[-1].memory["epochs"]
        for who in ("all", "smaller")
    )
    assert grown.max() > 1
    assert (alone == 1).all()


def test_autocfl_sends_the_epochs_down_and_the_loss_up() -> None:
    fed = federation()
    end(AutoCFL(SOLVER), fed, 1)
    (asked,) = fed.ledger
    assert (asked.down == 4 * fed.layout.size + 8).all()
    assert (asked.up == 4 * fed.layout.size + 4).all()


@pytest.mark.parametrize("guarded", ["update_cosine", "none"])
def test_autocfl_tells_what_its_guard_saw(guarded: str) -> None:
    """Clients that are their own clusters by the literal vote are no structure, guard or not."""
    state = end(AutoCFL(SOLVER, guard=guarded, literal=True), federation(12, 1), 6)
    assert state.memory["report_guard_silhouette"] < 0.25
    assert state.memory["report_guard_kept"] == 0
    assert (state.k == 1) == (guarded != "none")


@pytest.mark.parametrize("how", ["kmeans", "hac", "dbscan"])
def test_autocfls_weights_can_be_clustered_in_the_classic_ways(how: str) -> None:
    fed = federation()
    state = end(AutoCFL(SOLVER, clustering=how, told=2), fed, 6)  # type: ignore[arg-type]
    assert state.assign.tolist() == end(AutoCFL(SOLVER), federation(), 6).assign.tolist()
    three = end(AutoCFL(SOLVER, clustering=how, told=3), federation(), 6)  # type: ignore[arg-type]
    assert (three.k == 3) is (how != "dbscan"), "DBSCAN is told no number"


def test_autocfl_finds_the_planted_groups() -> None:
    state = end(AutoCFL(SOLVER), federation(), 6)
    assert state.assign.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


# -- FedDSMIC ----------------------------------------------------------------------------------


def test_a_centre_nobody_chose_keeps_its_bits() -> None:
    fed = federation()
    states = list(run(FedDS(SOLVER, clusters=8, seeding="random"), fed, 4))
    for before, after in pairwise(states[1:]):
        empty = [c for c in range(8) if not (after.assign == c).any()]
        assert empty
        assert torch.equal(after.models[empty], before.models[empty])


def test_a_random_seeding_draws_networks_not_clients() -> None:
    fed = federation()
    method = FedDS(SOLVER, clusters=3, seeding="random")
    state = method.init(fed)
    w = torch.randn(4, fed.layout.size)
    centres = method.seed(state, w, w, fed).models
    drawn = [fed.layout.fresh(stream(fed.seed, "centre", c)) for c in range(3)]
    assert torch.equal(centres, torch.stack(drawn))


def test_feddsmic_is_scored_before_and_after_one_step() -> None:
    fed = federation()
    method = FedDSMIC(SOLVER, clusters=2, eta=0.1)
    scores = evaluate(method, end(method, fed), fed)
    assert scores.stages == ("before", "after")
    assert (scores.loss[1] <= scores.loss[0]).double().mean() > 0.5


def test_clients_join_the_centre_nearest_by_prediction() -> None:
    state = end(FedDS(SOLVER, clusters=2), federation(), 4)
    assert state.assign.tolist() in ([0] * 4 + [1] * 4, [1] * 4 + [0] * 4)


def test_the_server_must_hold_samples() -> None:
    fed = federation()
    fed._public = None
    with pytest.raises(Exception, match="samples that the server holds"):
        predictions(fed.layout.initial[None], fed)


# -- DA-PFL ------------------------------------------------------------------------------------


def test_dapfl_moves_one_model_each_way_and_the_counts_once() -> None:
    fed = federation()
    end(DAPFL(SOLVER, 0.5), fed, 2)
    counts, *rounds = fed.ledger
    assert counts.up.tolist() == [4 * CLASSES] * 8
    for asked in rounds:
        assert (asked.down == 4 * fed.layout.size).all()
        assert (asked.up == 4 * fed.layout.size).all()


def test_dapfl_without_pull_is_local_to_the_bit() -> None:
    fed, alone = federation(), federation()
    state = end(DAPFL(SOLVER, 0.5, lam=0.0), fed)
    end(Local(SOLVER, 0.5), alone)
    # Its first round has an ask of its own before training, so the draws agree from there on.
    for i, kept in alone.memory.items():
        assert torch.equal(state.models[state.assign[i]], kept["private"])


def test_what_a_client_of_dapfl_holds_is_what_the_server_has() -> None:
    fed = federation()
    state = end(DAPFL(SOLVER, 0.5), fed)
    for i, kept in fed.memory.items():
        assert torch.equal(state.models[state.assign[i]], kept["model"])


@pytest.mark.parametrize("variant", ["full", "v2"])
def test_ones_own_model_is_not_in_ones_mixture(variant: str) -> None:
    fed = federation()
    method = DAPFL(SOLVER, variant=variant)
    state = end(method, fed, 2)
    W = method.weights(method.affinity(state, fed.clients), state.models, fed.sizes)
    assert (W.diagonal() == 0).all()
    torch.testing.assert_close(W.sum(1), torch.ones(8, dtype=W.dtype))


def test_statistics_of_batch_normalisation_are_no_distance() -> None:
    net = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
    people = [client(i, 4) for i in range(4)]
    sent = []

    class Watched(Front):
        def ask(self, cohort: Tensor, task: Task, state: State, **send: Tensor) -> Replies:
            sent.append(send.get("anchor"))
            return super().ask(cohort, task, state, **send)

    fed = Watched(people, Layout(net), classes=4, seed=1)
    method = DAPFL(SOLVER, 1.0)
    state = method.init(fed.at(-1))
    n = fed.layout.trainable
    rows = state.models + torch.randn(state.models.shape, generator=stream(0, "rows"))
    rows[:, n:] = rows[:, n:].abs()
    far = rows.clone()
    far[0, n:] += 1000.0
    for models in (rows, far):
        method.round(state.hold(models), fed.at(0))
    near, away = (a[:, :n] for a in sent if a is not None)
    assert torch.equal(near, away)


def test_autocfl_tells_its_losses_and_epochs_and_can_be_held() -> None:
    free = end(AutoCFL(SOLVER), federation(), 6)
    assert free.memory["report_adjusted_rounds"] == 5
    assert free.memory["report_loss_variance"] > 0
    assert free.memory["report_epochs_most"] >= free.memory["report_epochs_mean"] >= 1
    held = end(AutoCFL(SOLVER, earliest=7, latest=7), federation(), 6)
    assert "members" not in held.memory
    assert held.memory["report_adjusted_rounds"] == 6
    assert "members" in end(AutoCFL(SOLVER, earliest=7, latest=7), federation(), 7).memory
