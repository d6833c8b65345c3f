"""Populations: what each client sees, and what is known without looking."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import coterie
from coterie.core.client import Client
from coterie.core.errors import DataError
from coterie.data.dataset import scale
from coterie.data.divide.modifiers import rotate
from coterie.data.kinds import IID, Dirichlet, Rotation
from coterie.data.partition import divide
from coterie.data.population import Population, partition
from tests.data.labelled import labelled

DATA = labelled()
assert DATA.x_test is not None
assert DATA.y_test is not None
X_TEST, Y_TEST = DATA.x_test, DATA.y_test


def plain(kind: Any, clients: int = 8, **how: Any) -> Population:
    return partition(DATA, kind, clients, scaling="none", **how)


def test_a_client_holds_the_samples_that_the_partition_says() -> None:
    population = plain("dirichlet")
    for i, client in enumerate(population):
        index = population.partition.train[i]
        assert torch.equal(client.x, DATA.x[index])
        assert torch.equal(client.y, DATA.y[index])
        assert torch.equal(client.x_test, DATA.x[population.partition.test[i]])


@pytest.mark.parametrize("test", ["labels", "proportions"])
def test_official_test_samples_come_from_the_official_test_set(test: str) -> None:
    population = plain("classes", test=test)
    for i, client in enumerate(population):
        index = population.partition.test[i]
        assert torch.equal(client.x_test, X_TEST[index])
        assert torch.equal(client.y_test, Y_TEST[index])


def test_the_whole_pool_reaches_the_clients() -> None:
    population = plain("iid", pool="all")
    first = torch.cat([torch.cat([c.x, c.x_test]) for c in population])[:, 0, 0, 0]
    both = torch.cat([DATA.x, X_TEST])[:, 0, 0, 0]
    assert torch.equal(first.sort().values, both.sort().values)


def test_rotated_clients_see_turned_images_in_training_and_test() -> None:
    population = plain("rotation", test="labels")
    for i, client in enumerate(population):
        turns = int(population.partition.angle[i]) // 90
        back = torch.rot90(client.x, -turns, (-2, -1))
        assert torch.equal(back, DATA.x[population.partition.train[i]])
        assert torch.equal(torch.rot90(client.x_test, -turns, (-2, -1)), X_TEST)


def test_permuted_clients_see_their_own_labels_in_training_and_test() -> None:
    population = plain("permutation", test="labels")
    relabel = population.partition.relabel
    assert relabel is not None
    for i, client in enumerate(population):
        assert torch.equal(client.y, relabel[i][DATA.y[population.partition.train[i]]])
        assert torch.equal(client.y_test, relabel[i][Y_TEST])
        assert torch.equal(client.x_test, X_TEST)


def test_label_counts_are_those_of_the_clients() -> None:
    population = plain("dirichlet:0.2+permutation")
    counted = torch.stack([torch.bincount(c.y, minlength=10) for c in population])
    assert torch.equal(population.label_counts(), counted)


def test_sizes_are_known_before_any_tensor_is_made() -> None:
    population = plain("dirichlet")
    sizes, made = population.sizes, dict(population._clients)
    assert made == {}
    assert sizes.dtype == torch.float64
    assert sizes.tolist() == [len(client) for client in population]


def test_a_client_is_made_once() -> None:
    population = plain("iid")
    assert population[3] is population[3] is population[-5]


def test_a_population_is_a_sequence() -> None:
    population = plain("iid")
    assert len(population) == len(list(population)) == 8
    assert [c.name for c in population[1:4]] == ["1", "2", "3"]
    with pytest.raises(IndexError):
        population[8]


def test_clients_with_the_same_test_set_share_it() -> None:
    population = plain("iid+rotation", 8, test="labels")
    places = [client.x_test.data_ptr() for client in population]
    assert len(set(places)) == 4
    assert places[0] == places[1] != places[2]


def test_clients_are_named_by_their_owners() -> None:
    population = plain("natural", 5)
    assert population.names == tuple(client.name for client in population)
    assert all(int(name) % 3 == 0 for name in population.names)


def test_what_is_known_of_the_data() -> None:
    population = plain("rotation")
    assert population.classes == 10
    assert population.class_names == DATA.classes
    assert population.shape == (1, 4, 4)
    assert population.group is not None
    assert population.group.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert population.public is None
    assert "8 clients in 4 groups" in repr(population)


def test_notes_are_those_of_the_partition() -> None:
    assert plain("quantity").notes == ("4 clients are reduced, not 9: half of 8 at most",)


@pytest.mark.parametrize("scaling", ["standard", "unit", "none"])
def test_clients_hold_scaled_floats(scaling: Any) -> None:
    stored = replace(DATA, x=(DATA.x * 255).to(torch.uint8), peak=255.0)
    population = partition(stored, "iid", 4, scaling=scaling)
    expected = scale(stored, scaling).x[population.partition.train[0]]
    assert population[0].x.dtype == torch.float32
    assert torch.equal(population[0].x, expected)


def test_public_samples_are_scaled_and_nobody_elses() -> None:
    population = plain("iid", public=2)
    assert population.public is not None
    assert population.public.shape == (20, 1, 4, 4)
    clients = torch.cat([torch.cat([c.x, c.x_test]) for c in population])[:, 0, 0, 0]
    rows = torch.cat([clients, population.public[:, 0, 0, 0]]).sort().values
    assert torch.equal(rows, torch.arange(3000.0))
    scaled = partition(DATA, "iid", 8, public=2).public
    assert scaled is not None
    assert torch.equal(scaled, scale(DATA).x[population.public[:, 0, 0, 0].long()])


def test_the_key_changes_with_all_that_the_tensors_follow_from() -> None:
    keys = [
        partition(DATA, "iid", 8).key,
        partition(DATA, "iid", 9).key,
        partition(DATA, "shards", 8).key,
        partition(DATA, "iid", 8, seed=1).key,
        partition(DATA, "iid", 8, scaling="none").key,
        partition(DATA, "iid", 8, public=1).key,
        partition(DATA, "iid", 8, test="labels").key,
        partition(labelled(2999), "iid", 8).key,
        Population(DATA, divide(DATA, "iid", 8, 0)).key,
        Population(scale(DATA), divide(DATA, "iid", 8, 0)).key,
    ]
    assert len(set(keys)) == len(keys)
    assert keys[0] == partition(DATA, IID(), 8).key


def test_kinds_are_taken_as_objects_texts_and_tables() -> None:
    ways = [Dirichlet(0.3), "dirichlet:0.3", {"kind": "dirichlet", "alpha": 0.3}]
    assert len({partition(DATA, way, 8).key for way in ways}) == 1  # type: ignore[arg-type]


def test_anything_that_can_be_loaded_can_be_divided() -> None:
    x, y = np.random.default_rng(0).random((40, 3)), np.arange(40) % 4
    assert len(coterie.partition((x, y), "iid", 4)) == 4
    assert coterie.partition("digits", Rotation(), 20).shape == (1, 8, 8)


def test_a_population_can_be_sent_to_another_process() -> None:
    population = plain("rotation")
    assert torch.equal(pickle.loads(pickle.dumps(population))[5].x, population[5].x)


@pytest.mark.parametrize("pool", ["train", "all"])
def test_after_a_drift_clients_see_what_others_saw(pool: str) -> None:
    before = plain("rotation+drift:3", pool=pool)
    after, moves = before.at(3), before.partition.moves
    assert moves is not None
    assert before.at(2) is before
    assert after is before.at(9)
    for i, j in enumerate(moves.tolist()):
        assert torch.equal(after[i].x, before[j].x)
        assert torch.equal(after[i].x_test, before[j].x_test)
        assert after[i].name == before[i].name


def test_the_plot_shows_every_client_and_label_sorted_by_group() -> None:
    population = plain("label-sets:3,2,20", 12)
    figure = population.plot()
    group = population.group
    assert group is not None
    order = group.argsort(stable=True)
    assert (
        figure.data[0].z == tuple(map(tuple, population.label_counts()[order].tolist()))
        or (np.array(figure.data[0].z) == population.label_counts()[order].numpy()).all()
    )
    assert list(figure.data[0].x) == list(DATA.classes)
    assert len(set(figure.data[0].y)) == 12


def test_a_partition_of_other_data_is_refused() -> None:
    made = divide(DATA, "iid", 8, 0)
    with pytest.raises(DataError) as caught:
        Population(labelled(1000), made)
    assert caught.value.code == "D044"
    official = divide(DATA, "iid", 8, 0, test="labels")
    with pytest.raises(DataError, match="test indices"):
        Population(labelled(3000, test=100), official)
    permuted = divide(DATA, "permutation", 8, 0)
    with pytest.raises(DataError, match="permutes 10 labels"):
        Population(replace(DATA, classes=tuple("abcdefghijk")), permuted)


def test_turning_in_steps_is_the_interpolation_at_its_limit() -> None:
    x = torch.rand(3, 2, 7, 7)
    for angle in (90, 180, 270):
        assert torch.allclose(rotate(x, angle + 1e-4), rotate(x, angle), atol=1e-4)


def test_turning_keeps_a_constant_image_and_the_centre() -> None:
    assert torch.allclose(rotate(torch.full((1, 1, 5, 5), 3.0), 33), torch.tensor(3.0))
    x = torch.rand(1, 1, 5, 5)
    assert torch.isclose(rotate(x, 33)[0, 0, 2, 2], x[0, 0, 2, 2])


def test_turning_there_and_back_nearly_restores_a_smooth_image() -> None:
    line = torch.linspace(-1, 1, 32)
    x = torch.exp(-12 * ((line[:, None] - 0.3) ** 2 + line[None] ** 2))[None, None]
    assert (rotate(rotate(x, 30), -30) - x).abs().max() < 0.05
    assert (rotate(x, 30) - x).abs().max() > 0.2


X, Y = torch.rand(5, 3), torch.tensor([0, 1, 2, 1, 0])


def test_clients_brought_along_are_those_of_the_population() -> None:
    brought = [(X, Y), (X[:2], Y[:2], X[3:], Y[3:]), Client(X, Y, X[:0], Y[:0], "zoe")]
    population = Population.of(brought, test_share=0)
    assert population.names == ("0", "1", "zoe")
    assert population.sizes.tolist() == [5, 2, 5]
    assert torch.equal(population[1].x, X[:2])
    assert torch.equal(population[1].y_test, Y[3:])
    assert population[0].x_test.shape == (0, 3)
    assert population.classes == 3
    assert population.notes == ()


def test_who_brings_no_test_set_is_tested_on_some_of_its_samples_and_that_is_said() -> None:
    x, y = torch.arange(20.0).reshape(10, 2), torch.arange(10) % 2
    whole = (x, y, x[:1], y[:1])
    population = Population.of([(x, y), whole, Client(x, y, x[:0], y[:0], "zoe"), (x[:1], y[:1])])
    assert population.sizes.tolist() == [8, 10, 10, 1]
    assert [len(client.y_test) for client in population] == [2, 1, 0, 0]
    seen = torch.cat([population[0].x, population[0].x_test])
    assert torch.equal(seen[seen[:, 0].argsort()], x), "nothing is lost, nothing seen twice"
    said = "2 of 4 clients brought no test set: 20 % of their samples test them (test_share = 0.2)"
    assert population.notes == (said,)
    assert torch.equal(population[0].x, Population.of([(x, y), whole])[0].x), (
        "whoever else is there"
    )
    with pytest.raises(DataError, match="do not fit in"):
        Population.of([(x, y)], test_share=1)


def test_clients_may_come_by_name() -> None:
    population = Population.of({"lyon": (X, Y), "oslo": (X, Y, X, Y)})
    assert population.names == ("lyon", "oslo")
    assert population[1].name == "oslo"


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([1, 2, 3, 2, 1], ("1", "2", "3")),
        ([0, 1, 3, 1, 0], ("0", "1", "3")),
        (["b", "c", "a", "c", "b"], ("a", "b", "c")),
        (["b", "long word", "a", "long word", "b"], ("a", "b", "long word")),
    ],
)
def test_a_class_that_nobody_holds_is_none(labels: list[Any], classes: tuple[str, ...]) -> None:
    brought = np.array(labels), torch.tensor(labels) if isinstance(labels[0], int) else labels
    for y in brought:
        population = Population.of([(X, y), (X, y, X, y)])
        assert population.class_names == classes
        told = [population.class_names[k] for k in population[1].y.tolist()]
        assert told == list(map(str, labels))


def test_words_are_found_among_classes_that_are_said() -> None:
    words = np.array(["off", "on", "off", "on", "on"])
    population = Population.of([(X, words, X, words)], classes=["on", "off", "broken"])
    assert population[0].y.tolist() == [1, 0, 1, 0, 0]
    assert population.classes == 3
    with pytest.raises(DataError) as caught:
        Population.of([(X, words)], classes=["on", "out"])
    assert "label off is none of the classes" in str(caught.value)


def test_classes_and_groups_can_be_said() -> None:
    population = Population.of([(X, Y), (X, Y)], ["a", "b", "c", "d"], group=[7, 2])
    assert population.class_names == ("a", "b", "c", "d")
    assert population.group is not None
    assert population.group.tolist() == [0, 1]


def test_arrays_of_whole_numbers_become_floats_and_longs() -> None:
    pixels, labels = np.ones((4, 1, 2, 2), dtype=np.uint8), np.zeros(4, dtype=np.int32)
    client = Population.of([(pixels, labels)])[0]
    assert client.x.dtype == torch.float32
    assert client.y.dtype == torch.long


def test_the_key_of_brought_clients_follows_from_them() -> None:
    one = Population.of([(X, Y), (X, Y)])
    assert one.key == Population.of([(X, Y), (X, Y)]).key
    others = [
        Population.of([(X + 1, Y), (X, Y)]),
        Population.of([(X[:4], Y[:4]), (torch.cat([X[4:], X]), torch.cat([Y[4:], Y]))]),
        Population.of([(X, Y), Client(X, Y, X[:0], Y[:0], "b")]),
    ]
    assert len({one.key, *(other.key for other in others)}) == 4


@pytest.mark.parametrize(
    ("clients", "said"),
    [
        ([], "no clients"),
        ([(X,)], "1 parts"),
        ((X, Y), "it is a Tensor, no client"),
        ([torch.utils.data.TensorDataset(X, Y)], "it is a TensorDataset, no client"),
        ([(["a"] * 5, Y)], "samples that are no numbers"),
        ([(X, Y), (X, np.array(list("abcab")))], "words here and numbers there"),
        ([(X, [None] * 5)], "labels of type object"),
        ([(X, Y[:3])], "5 samples with labels (3,)"),
        ([(X, Y, X, Y[:1])], "5 samples"),
        ([(X, Y[:, None])], "labels (5, 1)"),
        ([(X, Y), (X[:, :2], Y)], "client 1"),
        ([(X, Y, X[:, :2], Y)], "(2,) and (3,)"),
        ([(X, Y), (X[:0], Y[:0])], "no training sample"),
        ([(X, Y - 1)], "not 0, 1, 2"),
        ([(X, Y + 0.5)], "not 0, 1, 2"),
        ([(X / 0, Y)], "not finite"),
        ([Client(X, Y, X, Y, "a"), Client(X, Y, X, Y, "a")], "2 clients have this name"),
    ],
)
def test_clients_that_do_not_fit_are_refused_in_words(clients: list[Any], said: str) -> None:
    with pytest.raises(DataError) as caught:
        Population.of(clients)
    assert caught.value.code == "D043"
    assert said in str(caught.value)
    assert caught.value.fix


def test_too_few_classes_or_groups_are_refused() -> None:
    with pytest.raises(DataError, match="label 2 with 2 classes"):
        Population.of([(X, Y)], 2)
    with pytest.raises(DataError, match="1 group for 2 clients"):
        Population.of([(X, Y), (X, Y)], group=[0])


def test_copies_are_kept_up_to_a_limit_and_made_anew_beyond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free, bound = plain("dirichlet"), plain("dirichlet")
    monkeypatch.setattr("coterie.data.population.HELD", free[0].x.nbytes + free[0].x_test.nbytes)
    assert bound[0] is bound[0]
    assert bound[1] is not bound[1]
    assert torch.equal(bound[1].x, free[1].x)
    assert torch.equal(bound[1].x_test, free[1].x_test)


@pytest.mark.parametrize(
    ("names", "why"), [((3, "3"), "2 clients have this name"), (("", "b"), "an empty name")]
)
def test_a_name_is_of_one_client(names: tuple[Any, Any], why: str) -> None:
    x, y = torch.randn(6, 4), torch.arange(6) % 2
    with pytest.raises(DataError, match="fit in") as caught:
        Population.of(dict.fromkeys(names, (x, y)))
    assert why in str(caught.value) + caught.value.why


def test_arrays_are_taken_however_they_lie() -> None:
    x, y = np.arange(24.0, dtype=np.float32).reshape(6, 4), np.arange(6) % 2
    wanted = Population.of([(x[:, ::-1].copy(), y)], test_share=0.0)[0].x
    for given in (x[:, ::-1], x[:, ::-1].astype(">f4"), torch.tensor(x).flip(1).requires_grad_()):
        assert torch.equal(Population.of([(given, y)], test_share=0.0)[0].x, wanted)
