"""The test protocols."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from coterie.data.dataset import Data
from coterie.data.partition import divide
from tests.data.labelled import labelled

DATA = labelled()
assert DATA.y_test is not None
OFFICIAL: Tensor = DATA.y_test


def counts(y: Tensor, index: Tensor) -> Tensor:
    return torch.bincount(y[index], minlength=10)


@pytest.mark.parametrize("kind", ["iid", "dirichlet:0.1", "shards", "natural"])
@pytest.mark.parametrize("share", [0.1, 0.2, 0.5])
def test_own_splits_every_client_in_the_proportions_of_its_labels(kind: str, share: float) -> None:
    made = divide(DATA, kind, 20, 0, test_share=share)
    assert made.test_source == "own"
    for train, test in zip(made.train, made.test, strict=True):
        size = len(train) + len(test)
        assert len(test) == min(max(int(share * size + 0.5), 1), size - 1)
        whole = counts(DATA.y, torch.cat([train, test]))
        assert ((counts(DATA.y, test) - whole * (len(test) / size)).abs() < 1).all()


def test_a_share_near_one_leaves_everyone_a_training_sample() -> None:
    made = divide(DATA, "iid", 1000, 0, test_share=0.99)
    assert {len(part) for part in made.train} == {1}


def test_a_client_with_one_sample_trains_on_it_and_is_named() -> None:
    made = divide(labelled(21, test=0), "iid", 20, 0)
    alone = [name for name, part in zip(made.names, made.test, strict=True) if not len(part)]
    assert len(alone) == 19
    assert made.notes[0].startswith("19 of 20 clients have no test sample: " + ", ".join(alone[:3]))


def test_labels_gives_all_official_samples_of_the_owned_labels() -> None:
    made = divide(DATA, "classes:3", 20, 0, test="labels")
    assert made.test_source == "official"
    for train, test in zip(made.train, made.test, strict=True):
        mine = torch.isin(OFFICIAL, DATA.y[train].unique()).nonzero().flatten()
        assert torch.equal(test, mine)


def test_an_official_test_leaves_all_samples_to_training() -> None:
    for test in ("labels", "proportions"):
        made = divide(DATA, "dirichlet", 20, 0, test=test)  # type: ignore[arg-type]
        assert sum(map(len, made.train)) == len(DATA.y)


def test_labels_can_give_a_share_of_each_owned_label() -> None:
    made = divide(DATA, "classes:3", 20, 0, test="labels", test_share=0.1)
    have = torch.bincount(OFFICIAL)
    for train, test in zip(made.train, made.test, strict=True):
        assert len(test.unique()) == len(test)
        wanted = (0.1 * have + 0.5).long().clamp(min=1) * (counts(DATA.y, train) > 0)
        assert torch.equal(counts(OFFICIAL, test), wanted)


def test_a_tiny_share_still_has_a_sample_of_each_owned_label() -> None:
    made = divide(DATA, "classes:3", 20, 0, test="labels", test_share=0.001)
    assert all(sorted(counts(OFFICIAL, part).tolist())[-4:] == [0, 1, 1, 1] for part in made.test)


def test_shares_of_a_label_are_drawn_for_each_client() -> None:
    made = divide(DATA, "iid", 20, 0, test="labels", test_share=0.1)
    assert len({tuple(part.tolist()) for part in made.test}) == 20


def test_every_test_sample_is_drawn_as_often_as_any_other() -> None:
    made = divide(labelled(classes=1), "iid", 2000, 0, test="labels", test_share=0.05)
    times = torch.bincount(torch.cat(made.test), minlength=600).float()
    assert float(times.mean()) == 100.0
    assert float(times.std()) < 15


def test_proportions_split_the_official_set_as_the_training_labels_are() -> None:
    made = divide(DATA, "dirichlet:0.3", 10, 0, test="proportions")
    index = torch.cat(made.test)
    assert torch.equal(index.sort().values, torch.arange(600))
    train = torch.stack([counts(DATA.y, part) for part in made.train])
    test = torch.stack([counts(OFFICIAL, part) for part in made.test])
    exact = train / train.sum(0) * torch.bincount(OFFICIAL)
    assert ((test - exact).abs() < 1).all()


def test_proportions_can_use_a_share_of_the_official_set() -> None:
    made = divide(DATA, "iid", 5, 0, test="proportions", test_share=0.5)
    index = torch.cat(made.test)
    assert abs(len(index) - 300) <= 5
    assert len(index.unique()) == len(index)


def test_proportions_give_the_smallest_client_one_sample_of_its_main_label() -> None:
    made = divide(DATA, "quantity-dirichlet:0.05,2", 100, 0, test="proportions")
    assert min(map(len, made.test)) == 1
    for train, test in zip(made.train, made.test, strict=True):
        if len(test) == 1:
            assert int(counts(DATA.y, train)[OFFICIAL[test]]) > 0


def test_reduced_clients_are_tested_as_if_they_had_not_been_reduced() -> None:
    for test in ("own", "labels", "proportions"):
        full, less = (
            divide(DATA, kind, 20, 0, test=test)  # type: ignore[arg-type]
            for kind in ("dirichlet", "dirichlet+quantity")
        )
        assert all(torch.equal(a, b) for a, b in zip(full.test, less.test, strict=True))


def test_the_whole_pool_is_divided_with_its_test_set_at_the_end() -> None:
    made = divide(DATA, "iid", 20, 0, pool="all")
    index = torch.cat([*made.train, *made.test])
    assert torch.equal(index.sort().values, torch.arange(3600))
    assert made.pool == "all"


def test_without_a_test_set_the_whole_pool_is_the_training_set() -> None:
    bare: Data = labelled(test=0)
    one, two = (divide(bare, "iid", 5, 0, pool=pool) for pool in ("train", "all"))  # type: ignore[arg-type]
    assert all(torch.equal(a, b) for a, b in zip(one.train, two.train, strict=True))


def test_a_label_missing_from_the_official_set_leaves_clients_untested_and_named() -> None:
    import dataclasses

    keep = OFFICIAL != 0
    assert DATA.x_test is not None
    few = dataclasses.replace(DATA, x_test=DATA.x_test[keep], y_test=OFFICIAL[keep])
    for test in ("labels", "proportions"):
        made = divide(few, "classes:1", 10, 0, test=test)  # type: ignore[arg-type]
        assert len(made.test[0]) == 0
        assert "1 of 10 clients have no test sample: 0" in made.notes
