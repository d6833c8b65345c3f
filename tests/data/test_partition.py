"""What holds for every kind of partition, and what each must refuse."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
import torch

from coterie.core.codes.data import DIVIDING
from coterie.core.errors import ConfigError, CoterieError, DataError
from coterie.data.dataset import Data
from coterie.data.kinds import KINDS, LabelSets, Permutation
from coterie.data.partition import Partition, divide, reserve
from tests.data.labelled import labelled

DATA = labelled()
EVERY = [
    *(name for name in KINDS if name not in ("label-sets", "drift")),
    "rotation+drift",
    "label-sets:5,2,5",
    "dirichlet:0.05",
    "dirichlet:0.01,20",
    "quantity-dirichlet:0.05",
    "label-skew:0.1",
    "label-groups:equal=false",
    "clustered-dirichlet:alpha=0.05,small=topup",
    "clustered-dirichlet:alpha=0.05",
    "shards+rotation:0,180+quantity",
    "label-groups+rotation:0,30+permutation:2+quantity",
]


def same(a: Partition, b: Partition) -> bool:
    lists = zip([*a.train, *a.test], [*b.train, *b.test], strict=True)
    return len(a) == len(b) and all(torch.equal(s, t) for s, t in lists)


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("seed", [0, 1])
def test_samples_are_within_range_increasing_and_nobodys_twice(kind: str, seed: int) -> None:
    made = divide(DATA, kind, 20, seed)
    index = torch.cat([*made.train, *made.test])
    assert len(index.unique()) == len(index)
    assert int(index.min()) >= 0
    assert int(index.max()) < len(DATA.y)
    assert all((part.diff() > 0).all() for part in (*made.train, *made.test))


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("clients", [10, 13, 60])
@pytest.mark.row(20, counts="partitions and clients looked at")
def test_every_client_has_a_training_sample(kind: str, clients: int) -> None:
    made = divide(DATA, kind, clients, 0)
    assert min(map(len, made.train)) >= 1
    assert len(made) == clients or "were left out" in made.notes[0]
    assert len(made.train) == len(made.test) == len(made.names) == len(made.angle)


@pytest.mark.parametrize("kind", EVERY)
def test_the_same_seed_gives_the_same_partition(kind: str) -> None:
    assert same(divide(DATA, kind, 20, 3), divide(DATA, kind, 20, 3))


@pytest.mark.parametrize("kind", EVERY)
def test_another_seed_hands_out_other_samples(kind: str) -> None:
    one, two = (divide(DATA, kind, 20, seed, test="proportions") for seed in (3, 4))
    assert not all(torch.equal(a, b) for a, b in zip(one.train, two.train, strict=False))


def test_another_seed_splits_off_another_test_set() -> None:
    one, two = (divide(DATA, "natural", None, seed) for seed in (3, 4))
    assert not same(one, two)


@pytest.mark.parametrize("kind", EVERY)
def test_groups_are_numbered_in_order_of_appearance(kind: str) -> None:
    group = divide(DATA, kind, 20, 0).group
    if group is not None:
        seen = list(dict.fromkeys(group.tolist()))
        assert seen == list(range(len(seen)))


@pytest.mark.parametrize(
    "kind", ["iid", "dirichlet", "label-skew", "shards", "classes", "quantity-dirichlet"]
)
def test_kinds_that_leave_nothing_out_hand_out_every_sample(kind: str) -> None:
    made = divide(DATA, kind, 20, 0)
    assert sum(map(len, (*made.train, *made.test))) == len(DATA.y)
    assert not any("held by nobody" in note for note in made.notes)


def test_samples_left_out_are_reported() -> None:
    made = divide(DATA, "label-groups", 20, 0)
    left = len(DATA.y) - sum(map(len, (*made.train, *made.test)))
    assert f"{left:,} of 3,000 samples are held by nobody" in made.notes


def changed(**other: Any) -> str:
    how = {
        "data": DATA,
        "kind": "iid",
        "clients": 20,
        "seed": 0,
        "test": "own",
        "test_share": 0.3,
        "pool": "train",
    }
    return divide(**(how | other)).key  # type: ignore[arg-type]


def test_the_key_changes_with_every_argument() -> None:
    x = DATA.x.clone()
    x[5, 0, 1, 1] += 1
    keys = [
        changed(),
        changed(kind="shards"),
        changed(kind="shards:3"),
        changed(kind="iid+rotation"),
        changed(kind="iid+rotation:0,90"),
        changed(kind="iid+quantity+rotation"),
        changed(kind="iid+rotation+quantity"),
        changed(clients=19),
        changed(seed=1),
        changed(test="labels"),
        changed(test="proportions"),
        changed(test_share=0.25),
        changed(pool="all"),
        changed(data=replace(DATA, x=x)),
    ]
    assert len(set(keys)) == len(keys)


def test_the_key_does_not_care_how_a_kind_was_written() -> None:
    written = [
        "rotation",
        "iid+rotation:0,90,180,270",
        {"kind": "rotation", "angles": [0, 90, 180, 270]},
    ]
    assert len({changed(kind=kind) for kind in written}) == 1


def test_a_default_share_has_the_key_of_its_value() -> None:
    assert changed(test_share=None) == changed(test_share=0.2)
    assert changed(test="labels", test_share=None) == changed(test="labels", test_share=1.0)


@pytest.mark.parametrize("kind", [*KINDS, "dirichlet:0.05", "label-groups+rotation+quantity"])
def test_a_thousand_clients_are_divided_in_well_under_a_second(kind: str) -> None:
    big = labelled(60_000, test=0, owners=1500)
    kind = {"label-sets": "label-sets:5,2,1", "drift": "rotation+drift"}.get(kind, kind)
    clients = 500 if kind == "natural" else 1000
    began = time.process_time()
    divide(big, kind, clients, 0)
    assert time.process_time() - began < 2.0  # of a slow machine; 0.2 s as a rule


def refused(code: str, data: Data = DATA, kind: Any = "iid", clients: Any = 20, **how: Any) -> str:
    with pytest.raises(CoterieError) as caught:
        divide(data, kind, clients, 0, **how)
    assert caught.value.code == code
    assert code in DIVIDING
    assert caught.value.fix
    assert isinstance(caught.value, ConfigError if code.startswith("C") else DataError)
    return str(caught.value)


@pytest.mark.parametrize(
    ("code", "how", "said"),
    [
        ("C020", {"kind": "nonsense"}, "nonsense"),
        ("C023", {"clients": 0}, "at least one client"),
        ("C023", {"clients": None}, "only natural owners"),
        ("C023", {"test": "none"}, '"proportions"'),
        ("C023", {"pool": "test"}, '"all"'),
        ("C023", {"test_share": 0.0}, "above 0"),
        ("C023", {"test_share": 1.0}, "1 only with the official test set"),
        ("C023", {"test_share": float("nan")}, "out of bounds"),
        ("D030", {"clients": 4000}, "at most 3,000 clients"),
        ("D030", {"kind": "shards:3", "clients": 1001}, "at most 1,000 clients"),
        ("D031", {"kind": "classes:11"}, "at most 10"),
        ("D031", {"kind": "label-sets:3,11"}, "lower labels to at most 10"),
        ("D031", {"kind": "clustered-dirichlet:11"}, "lower groups"),
        ("D031", {"kind": "label-groups:0-3/8-12"}, "label 10, 11, 12"),
        ("D032", {"kind": "dirichlet:0.5,200"}, "at most 150"),
        ("D032", {"kind": "dirichlet:0.01,100,error"}, "after 1,000 draws they have"),
        ("D032", {"kind": "quantity-dirichlet:0.01,100,error"}, 'small = "repair"'),
        ("D032", {"kind": "clustered-dirichlet:alpha=0.05,small=error"}, "after 1 draw they have"),
        ("D032", {"kind": "clustered-dirichlet:min_samples=3000"}, "20 of 20 clients"),
        ("D032", {"kind": "natural:5000"}, "the largest of 60 owners has"),
        ("D033", {"kind": "label-skew:0.1", "clients": 2900}, "clients have no training sample"),
        ("D034", {"kind": "label-skew:0.2", "clients": 4}, "at least 5 clients"),
        ("D035", {"kind": "label-sets:5,5,300"}, "lower samples to"),
        ("D035", {"kind": "label-sets:5,5,3000,reuse"}, "are there"),
        ("D035", {"kind": "label-groups", "clients": 2900}, "equal = false"),
        ("D036", {"kind": "natural", "data": replace(DATA, owner=None)}, "LEAF"),
        ("D037", {"test": "labels", "data": labelled(test=0)}, "labelled has none"),
        ("D037", {"test": "proportions", "pool": "all"}, 'pool = "train"'),
        ("D038", {"kind": "rotation", "data": labelled(shape=(5,))}, "(C, H, W)"),
        ("D038", {"kind": "rotation", "data": labelled(shape=(1, 4, 6))}, "square"),
        ("D039", {"kind": "rotation", "clients": 3}, "at least 4 clients"),
        ("D039", {"kind": "label-groups", "clients": 3}, "fewer groups"),
        ("D039", {"kind": "permutation:3", "data": labelled(classes=2)}, "at most 2 groups"),
        ("D045", {"kind": "drift"}, "rotation+drift"),
        ("D045", {"kind": "dirichlet+drift"}, "all clients are in one group"),
        ("D043", {"data": replace(DATA, classes=("a", "b"))}, "for 2 classes"),
    ],
)
def test_what_cannot_be_divided_is_refused_in_words(
    code: str, how: dict[str, Any], said: str
) -> None:
    assert said in refused(code, **how)


@pytest.mark.row(20, counts="partitions and clients looked at")
def test_the_number_that_the_error_offers_is_enough() -> None:
    message = refused("D035", kind=LabelSets(samples=300))
    offered = int(message.split("lower samples to ")[1].split(",")[0])
    assert len(divide(DATA, LabelSets(samples=offered), 20, 0)) == 20


def test_flat_turns_are_no_matter_of_squareness() -> None:
    assert len(divide(labelled(shape=(1, 4, 6)), "rotation:0,180", 4, 0)) == 4


def test_labels_that_never_occur_are_not_dealt() -> None:
    wide = replace(DATA, classes=tuple(map(str, range(30))))
    for kind in ("label-skew:0.1", "classes:1", "label-sets:3,1,5", "clustered-dirichlet"):
        assert len(divide(wide, kind, 15, 0))


def test_one_client_can_have_everything() -> None:
    for kind in ("iid", "dirichlet", "shards", "quantity-dirichlet", "iid+quantity"):
        made = divide(DATA, kind, 1, 0)
        assert len(made.train[0]) + len(made.test[0]) == len(DATA.y)


def test_as_many_clients_as_samples_have_one_each() -> None:
    made = divide(DATA, "iid", len(DATA.y), 0)
    assert {len(part) for part in made.train} == {1}
    assert "3000 of 3000 clients have no test sample" in made.notes[0]


@pytest.mark.parametrize("per_class", [1, 10])
def test_reserved_samples_are_taken_out_of_every_class(per_class: int) -> None:
    left, x, y = reserve(DATA, per_class, seed=0)
    assert torch.bincount(y).tolist() == [per_class] * 10
    assert torch.equal(DATA.y[x[:, 0, 0, 0].long()], y)
    rows = torch.cat([left.x, x])[:, 0, 0, 0].sort().values
    assert torch.equal(rows, torch.arange(3000.0))
    assert left.owner is not None
    assert len(left.y) == len(left.x) == len(left.owner)


def test_reserving_follows_from_its_seed() -> None:
    one, two, three = (reserve(DATA, 3, seed)[1] for seed in (0, 0, 1))
    assert torch.equal(one, two)
    assert not torch.equal(one, three)


def test_a_class_is_never_emptied_by_reserving() -> None:
    least = int(torch.bincount(DATA.y).min())
    assert len(reserve(DATA, least - 1, 0)[1]) == 10 * (least - 1)
    with pytest.raises(DataError) as caught:
        reserve(DATA, least, 0)
    assert caught.value.code == "D040"
    assert f"at most {least - 1} of each class" in caught.value.fix


def test_permutations_follow_from_the_seed() -> None:
    one, two = (divide(DATA, "permutation", 4, seed).relabel for seed in (0, 1))
    assert one is not None
    assert two is not None
    assert not torch.equal(one, two)


def test_permutation_maps_are_distinct_permutations_with_the_identity_first() -> None:
    made = divide(labelled(classes=3), Permutation(groups=6), 6, 0)
    assert made.relabel is not None
    assert made.relabel[0].tolist() == [0, 1, 2]
    assert all(sorted(row) == [0, 1, 2] for row in made.relabel.tolist())
    assert all(a != b for a, b in combinations(made.relabel.tolist(), 2))
