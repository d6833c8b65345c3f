"""What each kind plants: labels, sizes, angles and the groups that are the ground truth."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from coterie.core.errors import DataError
from coterie.data.divide.dealing import label_counts
from coterie.data.kinds import (
    ClusteredDirichlet,
    Dirichlet,
    LabelGroups,
    LabelSets,
    Quantity,
    Rotation,
    describe,
    parse,
)
from coterie.data.partition import Partition, divide
from tests.data.labelled import labelled

DATA = labelled()


def held(made: Partition) -> Tensor:
    """(n, K) all samples of each client by label."""
    pairs = zip(made.train, made.test, strict=True)
    parts = [torch.cat(pair).numpy() for pair in pairs]
    return torch.from_numpy(label_counts(parts, DATA.y.numpy(), len(DATA.classes)))


def sizes(made: Partition) -> list[int]:
    return held(made).sum(1).tolist()


def owned(made: Partition) -> list[set[int]]:
    return [set(row.nonzero().flatten().tolist()) for row in held(made)]


def blocks(n: int, groups: int) -> list[int]:
    return [i * groups // n for i in range(n)]


def test_iid_sizes_differ_by_one_at_most_and_everyone_is_one_group() -> None:
    made = divide(DATA, "iid", 7, 0)
    assert max(sizes(made)) - min(sizes(made)) <= 1
    assert made.group is not None
    assert made.group.tolist() == [0] * 7


def test_iid_labels_are_those_of_the_pool() -> None:
    share = held(divide(DATA, "iid", 3, 0)) / 1000
    assert (share - torch.bincount(DATA.y) / 3000).abs().max() < 0.05


def test_a_stratified_iid_gives_everyone_the_same_proportions() -> None:
    made = held(divide(DATA, "iid:stratified=true", 7, 0))
    assert (made.max(0).values - made.min(0).values).max() <= 1
    fall = held(divide(DATA, "iid", 7, 0))
    assert (fall.max(0).values - fall.min(0).values).max() > 1, "without it, as labels fall"


def test_label_groups_may_have_unequal_numbers_of_clients_and_given_sizes() -> None:
    kind = parse("label-groups:0-1/2-4,members=2/5,sizes=90/80/70/60/50/40/30")
    made = divide(DATA, kind, 7, 0)
    assert made.group is not None
    assert made.group.tolist() == [0, 0, 1, 1, 1, 1, 1]
    assert sizes(made) == [90, 80, 70, 60, 50, 40, 30]
    assert owned(made) == [{0, 1}] * 2 + [{2, 3, 4}] * 5
    assert parse(str(kind)) == kind


def test_a_dirichlet_inside_label_groups_leaves_the_groups_and_skews_the_clients() -> None:
    made = divide(DATA, LabelGroups(((0, 1, 2), (3, 4, 5)), alpha=0.3), 8, 0)
    even = divide(DATA, LabelGroups(((0, 1, 2), (3, 4, 5))), 8, 0)
    assert all(own <= {0, 1, 2} for own in owned(made)[:4])
    assert all(own <= {3, 4, 5} for own in owned(made)[4:])
    largest = [
        float((held(m) / held(m).sum(1, keepdim=True)).max(1).values.mean()) for m in (made, even)
    ]
    assert largest[0] > largest[1] + 0.1
    assert len(set(sizes(made))) == 1, "everybody still holds as many"


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("label-groups:0-1/2-4,members=2/4", "7 clients"),
        ("label-groups:0-1/2-4,members=7", "2 groups"),
        ("label-groups:0-1/2-4,sizes=10/20", "2 sizes"),
        ("label-groups:0-1/2-4,sizes=9000/1/1/1/1/1/1", "too few"),
    ],
)
def test_groups_and_sizes_that_cannot_be_are_refused(kind: str, told: str) -> None:
    with pytest.raises(DataError, match=told):
        divide(DATA, kind, 7, 0)


def test_fields_that_came_later_leave_the_keys_of_older_partitions_alone() -> None:
    assert describe(parse("iid")) == {"kind": "iid"}
    assert {*describe(LabelGroups())} == {"kind", "groups", "equal"}


def test_a_smaller_alpha_is_more_skewed() -> None:
    spread = [
        float((counts / counts.sum(1, keepdim=True)).max(1).values.mean())
        for counts in (held(divide(DATA, f"dirichlet:{a}", 20, 0)).float() for a in (100, 1, 0.1))
    ]
    assert spread[0] < spread[1] < spread[2]


def test_dirichlet_is_not_capped_at_the_mean_size() -> None:
    assert max(sizes(divide(DATA, "dirichlet:0.1", 20, 0))) > 2 * 3000 / 20


@pytest.mark.parametrize("kind", ["dirichlet:0.01,20", "quantity-dirichlet:0.01,20"])
@pytest.mark.row(20, counts="partitions and clients looked at")
def test_small_clients_are_repaired_to_the_least_and_it_is_said(kind: str) -> None:
    made = divide(DATA, kind, 20, 0)
    assert min(sizes(made)) == 20
    assert "none of 1,000 draws gave every client 20 samples" in made.notes[0]


def test_a_draw_that_fits_is_not_touched() -> None:
    assert divide(DATA, "dirichlet:1", 20, 0).notes == ()


def test_quantity_dirichlet_changes_sizes_and_not_labels() -> None:
    made = divide(DATA, "quantity-dirichlet:0.3", 5, 0)
    largest = held(made)[int(torch.tensor(sizes(made)).argmax())].float()
    assert max(sizes(made)) > 3 * min(sizes(made))
    assert (largest / largest.sum() - torch.bincount(DATA.y) / 3000).abs().max() < 0.05


@pytest.mark.parametrize(("share", "each"), [(0.2, 2), (0.3, 3), (0.01, 1), (1.0, 10)])
def test_label_skew_gives_everyone_its_share_and_every_label_an_owner(
    share: float, each: int
) -> None:
    sets = owned(divide(DATA, f"label-skew:{share}", 50, 0))
    assert {len(s) for s in sets} == {each}
    assert set().union(*sets) == set(range(10))


def test_label_skew_deals_a_label_near_equally_to_its_owners() -> None:
    counts = held(divide(DATA, "label-skew:0.3", 50, 0))
    for column in counts.T:
        among = column[column > 0]
        assert int(among.max() - among.min()) <= 1


def test_label_skew_hands_labels_on_when_no_draw_gives_each_an_owner() -> None:
    data = labelled(classes=15)
    made = divide(data, "label-skew:0.07", 15, 0)  # 15! of 15^15 draws would do
    assert sorted(data.y[part].unique().tolist() for part in made.train) == [[k] for k in range(15)]
    assert "handed on" in made.notes[0]


def test_classes_gives_client_i_label_i_and_others() -> None:
    sets = owned(divide(DATA, "classes:3", 25, 0))
    assert all(i % 10 in s and len(s) == 3 for i, s in enumerate(sets))


def test_shards_are_equal_and_hold_few_labels() -> None:
    made = divide(DATA, "shards:2", 20, 0)
    assert max(sizes(made)) - min(sizes(made)) <= 2
    assert max(map(len, owned(made))) <= 4  # a shard may lie across one border of labels


def test_a_client_may_get_shards_from_anywhere() -> None:
    spans = [max(s) - min(s) for s in owned(divide(DATA, "shards:2", 20, 0))]
    assert max(spans) > 3


def test_label_groups_plant_their_labels_and_blocks() -> None:
    made = divide(DATA, "label-groups", 20, 0)
    groups = LabelGroups().groups
    assert made.group is not None
    assert made.group.tolist() == blocks(20, 4)
    assert owned(made) == [set(groups[g]) for g in blocks(20, 4)]


def test_equal_label_groups_give_everyone_as_much_as_can_be() -> None:
    made = divide(DATA, "label-groups", 20, 0)
    counts = held(made)
    assert len(set(sizes(made))) == 1
    for row in counts:
        assert int(row[row > 0].max() - row[row > 0].min()) <= 1
    # One more for everyone would need more of some label than there is.
    demand = sum(5 / len(g) * np.isin(np.arange(10), g) for g in LabelGroups().groups)
    assert ((sizes(made)[0] + 2) * demand > torch.bincount(DATA.y).numpy()).any()


def test_unequal_label_groups_deal_every_sample_near_equally() -> None:
    made = divide(DATA, "label-groups:equal=false", 20, 0)
    assert sum(sizes(made)) == len(DATA.y)
    for column in held(made).T:
        among = column[column > 0]
        assert int(among.max() - among.min()) <= 1


def test_label_sets_give_samples_of_each_label_and_plant_the_distinct_sets() -> None:
    made = divide(DATA, LabelSets(sets=5, labels=2, samples=20), 20, 0)
    assert made.group is not None
    assert set(held(made).flatten().tolist()) == {0, 20}
    seen = {}
    for labels, g in zip(owned(made), made.group.tolist(), strict=True):
        assert len(labels) == 2
        assert seen.setdefault(g, labels) == labels
    assert len({tuple(s) for s in seen.values()}) == len(seen)


def test_coinciding_label_sets_are_one_group() -> None:
    made = divide(labelled(classes=2), LabelSets(sets=6, labels=2, samples=5, repeat=True), 20, 0)
    assert made.group is not None
    assert set(made.group.tolist()) == {0}


def test_reused_samples_are_said_and_never_twice_with_one_client() -> None:
    made = divide(DATA, LabelSets(samples=150, short="reuse"), 20, 0)
    everything = [torch.cat(pair) for pair in zip(made.train, made.test, strict=True)]
    assert all(len(part.unique()) == len(part) == 300 for part in everything)
    assert any("held by more than one client" in note for note in made.notes)


def test_clustered_dirichlet_plants_the_dominant_group_of_labels() -> None:
    made = divide(DATA, ClusteredDirichlet(alpha=0.1), 30, 0)
    assert made.group is not None
    # Labels of one group are shared out alike: find the groups again from who holds what.
    counts = held(made).float()
    alike = torch.corrcoef(counts.T) > 0.5
    sides = {tuple(row.nonzero().flatten().tolist()) for row in alike}
    assert sorted(map(len, sides)) == [3, 3, 4]
    ordered = sorted(sides)
    dominant = torch.stack([counts[:, list(side)].sum(1) for side in ordered], 1).argmax(1)
    pairs = set(zip(dominant.tolist(), made.group.tolist(), strict=True))
    assert len(pairs) == 3


def test_clustered_dirichlet_shuffles_the_labels_before_grouping_them() -> None:
    in_order = torch.block_diag(torch.ones(4, 4), torch.ones(3, 3), torch.ones(3, 3)).bool()
    for seed in range(3):
        counts = held(divide(DATA, ClusteredDirichlet(alpha=0.1), 30, seed)).float()
        together = torch.corrcoef(counts.T) > 0.5
        assert (together != in_order).float().mean() > 0.2


def test_clustered_dirichlet_drops_small_clients_and_says_so() -> None:
    made = divide(DATA, ClusteredDirichlet(alpha=0.05), 30, 0)
    assert min(sizes(made)) >= 20
    assert f"{len(made)} remain" in made.notes[0]
    assert made.names == tuple(map(str, range(len(made))))


def test_clustered_dirichlet_can_top_up_instead() -> None:
    made = divide(DATA, ClusteredDirichlet(alpha=0.05, small="topup"), 30, 0)
    assert len(made) == 30
    assert min(sizes(made)) == 20


def test_natural_clients_hold_exactly_their_own() -> None:
    assert DATA.owner is not None
    made = divide(DATA, "natural", None, 0)
    assert made.names == tuple(str(3 * i) for i in range(60))
    for name, train, test in zip(made.names, made.train, made.test, strict=True):
        mine = (DATA.owner == int(name)).nonzero().flatten()
        assert torch.equal(torch.cat([train, test]).sort().values, mine)


def test_fewer_natural_clients_are_a_seeded_choice_of_owners() -> None:
    some = [divide(DATA, "natural", 10, seed).names for seed in (0, 0, 1)]
    assert len(set(some[0])) == 10
    assert some[0] == some[1] != some[2]


def test_small_owners_are_left_out_and_it_is_said() -> None:
    assert DATA.owner is not None
    large = int((torch.bincount(DATA.owner) >= 50).sum())
    made = divide(DATA, "natural:50", None, 0)
    assert len(made) == large < 60
    assert f"{large} of 60 owners have at least 50 samples" in made.notes[0]


def test_natural_owners_of_both_sets_are_merged_with_the_pool() -> None:
    assert DATA.owner is not None
    assert DATA.owner_test is not None
    owner = torch.cat([DATA.owner, DATA.owner_test])
    made = divide(DATA, "natural", None, 0, pool="all")
    assert owner[torch.cat([made.train[0], made.test[0]])].unique().tolist() == [0]


@pytest.mark.parametrize("n", [4, 5, 20, 23])
def test_rotation_groups_are_even_blocks_at_their_angles(n: int) -> None:
    made = divide(DATA, Rotation(angles=(0, 90, -90, 540)), n, 0)
    angles = torch.tensor([0, 90, 270, 180])
    assert made.group is not None
    assert made.group.tolist() == blocks(n, 4)
    assert torch.equal(made.angle, angles[made.group].double())
    assert int(torch.bincount(made.group).max() - torch.bincount(made.group).min()) <= 1


def test_permutation_groups_share_a_map_within_and_differ_between() -> None:
    made = divide(DATA, "permutation", 20, 0)
    assert made.group is not None
    assert made.relabel is not None
    assert made.group.tolist() == blocks(20, 4)
    assert len(made.relabel.unique(dim=0)) == 4
    assert all(len(made.relabel[made.group == g].unique(dim=0)) == 1 for g in range(4))


def test_two_groupings_cross_and_the_truth_is_the_pair() -> None:
    made = divide(DATA, "rotation:0,90+permutation:2", 20, 0)
    assert made.group is not None
    assert made.relabel is not None
    pairs = list(zip(made.angle.tolist(), map(tuple, made.relabel.tolist()), strict=True))
    assert len(set(pairs)) == 4
    assert torch.bincount(made.group).tolist() == [5, 5, 5, 5]
    assert len(set(zip(pairs, made.group.tolist(), strict=True))) == 4


def test_label_groups_cross_with_rotation_evenly() -> None:
    made = divide(DATA, "label-groups+rotation:0,180", 20, 0)
    assert made.group is not None
    assert int(made.group.max()) + 1 == 8
    assert set(torch.bincount(made.group).tolist()) == {2, 3}
    assert int((made.angle == 180).sum()) == 10


def test_three_groupings_cross_evenly() -> None:
    made = divide(DATA, "label-groups+rotation:0,180+permutation:2", 32, 0)
    assert made.group is not None
    assert torch.bincount(made.group).tolist() == [2] * 16


def test_a_modifier_changes_no_draw_of_its_base() -> None:
    plain, turned = divide(DATA, "dirichlet", 20, 0), divide(DATA, "dirichlet+rotation", 20, 0)
    assert all(torch.equal(a, b) for a, b in zip(plain.train, turned.train, strict=True))
    assert plain.group is None
    assert turned.group is not None
    assert turned.group.tolist() == blocks(20, 4)


@pytest.mark.parametrize("kind", ["rotation+drift", "label-groups+drift:5,0.5"])
def test_drift_exchanges_clients_of_different_groups_in_pairs(kind: str) -> None:
    made = divide(DATA, kind, 20, 0)
    assert made.moves is not None
    assert made.group is not None
    moved = (made.moves != torch.arange(20)).nonzero().flatten()
    assert len(moved) == (4 if kind == "rotation+drift" else 10)
    assert torch.equal(made.moves[made.moves], torch.arange(20))
    assert (made.group[moved] != made.group[made.moves[moved]]).all()


def test_drift_happens_at_its_round_and_changes_samples_angles_and_truth_together() -> None:
    made = divide(DATA, "rotation+drift:7", 20, 0)
    assert made.at(6) is made
    after = made.at(7)
    assert made.moves is not None
    assert made.group is not None
    assert after.group is not None
    for i, j in enumerate(made.moves.tolist()):
        assert torch.equal(after.train[i], made.train[j])
        assert torch.equal(after.test[i], made.test[j])
        assert after.angle[i] == made.angle[j]
        assert after.group[i] == made.group[j]
    assert after.names == made.names


def test_drift_changes_nothing_before_its_round() -> None:
    plain, later = divide(DATA, "rotation", 20, 0), divide(DATA, "rotation+drift", 20, 0)
    assert all(torch.equal(a, b) for a, b in zip(plain.train, later.train, strict=True))
    assert plain.key != later.key


def test_quantity_reduces_nine_of_twenty_to_their_shares_of_the_training_set() -> None:
    full, less = divide(DATA, "iid", 20, 0), divide(DATA, "quantity", 20, 0)
    shares = sorted(round(len(a) / len(b), 1) for a, b in zip(less.train, full.train, strict=True))
    assert shares == [0.1] * 3 + [0.3] * 3 + [0.6] * 3 + [1.0] * 11
    assert all(
        set(a.tolist()) <= set(b.tolist()) for a, b in zip(less.train, full.train, strict=True)
    )


def test_quantity_reduces_random_clients() -> None:
    reduced = set()
    for seed in range(3):
        sizes = [len(part) for part in divide(DATA, "quantity", 20, seed).train]
        reduced.add(tuple(i for i, size in enumerate(sizes) if size < max(sizes)))
    assert len(reduced) == 3


def test_quantity_leaves_everyone_a_sample() -> None:
    made = divide(DATA, "quantity:0.001,each=10", 20, 0)
    assert sorted(map(len, made.train))[:11] == [1] * 10 + [120]


def test_quantity_leaves_test_sets_and_groups_alone() -> None:
    full, less = divide(DATA, "label-groups", 20, 0), divide(DATA, "label-groups+quantity", 20, 0)
    assert all(torch.equal(a, b) for a, b in zip(full.test, less.test, strict=True))
    assert full.group is not None
    assert less.group is not None
    assert torch.equal(full.group, less.group)


def test_quantity_keeps_the_proportions_of_the_labels() -> None:
    full, less = (divide(DATA, k, 20, 0) for k in ("shards", "shards+quantity:0.5,each=10"))
    for a, b in zip(full.train, less.train, strict=True):
        before, after = (torch.bincount(DATA.y[t], minlength=10) for t in (a, b))
        assert ((before * (len(b) / len(a)) - after).abs() < 1).all()


@pytest.mark.parametrize(("n", "reduced"), [(1, 0), (2, 1), (5, 2), (10, 5), (19, 9), (40, 9)])
def test_quantity_never_reduces_more_than_half(n: int, reduced: int) -> None:
    full, less = divide(DATA, "iid", n, 0), divide(DATA, Quantity(), n, 0)
    smaller = sum(len(a) < len(b) for a, b in zip(less.train, full.train, strict=True))
    assert smaller == reduced
    assert bool(less.notes) == (reduced < 9)


@pytest.mark.parametrize("seed", range(30))
def test_no_two_label_sets_are_the_same_unless_they_may_be(seed: int) -> None:
    from coterie.data.divide.dealing import label_sets

    rng = np.random.default_rng(seed)
    assert len(np.unique(label_sets(5, 2, 5, False, rng), axis=0)) == 5
    assert label_sets(10, 2, 5, False, rng).sum(0).tolist() == [4] * 5, "all ten there are"


def test_label_sets_may_repeat_and_more_than_there_are_must() -> None:
    many = divide(DATA, "label-sets:200,1,1,repeat=true", 20, 0)
    assert many.group is not None
    with pytest.raises(DataError, match="only 10 sets of 1, not 11") as found:
        divide(DATA, "label-sets:11,1,1", 20, 0)
    assert "repeat = true" in found.value.fix


def test_a_capped_dirichlet_fills_nobody_who_has_its_share() -> None:
    from coterie.data.divide.dealing import capped

    rng = np.random.default_rng(0)
    q, totals = rng.dirichlet(np.full(8, 0.1), size=10), np.full(10, 40)
    counts = capped(q, totals)
    assert counts.sum(0).tolist() == totals.tolist(), "every sample has its client"
    before = np.cumsum(counts, 1) - counts
    assert not counts[before >= totals.sum() / 8].any()
    assert parse("noniid-labeldir:0.1") == Dirichlet(alpha=0.1, cap=True)
