"""Kinds of partition: texts, tables, composition, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.core.errors import ConfigError, FieldError
from coterie.data import kinds
from coterie.data.kinds import (
    IID,
    KINDS,
    Classes,
    ClusteredDirichlet,
    Composite,
    Dirichlet,
    Kind,
    LabelGroups,
    LabelSets,
    Modifier,
    Natural,
    Permutation,
    Quantity,
    QuantityDirichlet,
    Rotation,
    Shards,
    describe,
    from_dict,
    parse,
    read,
)

positive = st.floats(1e-6, 1e6)
shares = st.floats(0.001, 1.0)
count = st.integers(1, 10_000)
label_groups = st.lists(
    st.lists(st.integers(0, 99), min_size=1, max_size=5, unique=True), min_size=1, max_size=5
)
bases = st.one_of(
    st.just(IID()),
    st.builds(Dirichlet, positive, count, st.sampled_from(["repair", "error"])),
    st.builds(kinds.LabelSkew, shares),
    st.builds(Shards, count),
    st.builds(Classes, count),
    st.builds(QuantityDirichlet, positive, count),
    st.builds(LabelGroups, label_groups, st.booleans()),
    st.builds(LabelSets, count, count, count, st.sampled_from(["error", "reuse"])),
    st.builds(ClusteredDirichlet, count, positive, count, st.sampled_from(["drop", "topup"])),
    st.builds(Natural, count),
)
modifiers = st.tuples(
    st.builds(
        Rotation, st.lists(st.integers(0, 719).map(lambda a: a / 2), min_size=1, unique=True)
    ),
    st.builds(Permutation, count),
    st.builds(kinds.Contrast, st.lists(shares, min_size=1, max_size=4)),
    st.builds(kinds.Noise, st.lists(shares, min_size=1, max_size=4)),
    st.builds(kinds.Blur, st.lists(shares, min_size=1, max_size=4)),
    st.builds(Quantity, st.lists(shares, min_size=1, max_size=4), count),
    st.builds(kinds.Drift, count, shares, st.sampled_from(["sudden", "gradual"]), count),
    st.builds(kinds.Arrivals, count, shares, count),
)
anything = st.one_of(
    bases,
    modifiers.flatmap(st.sampled_from),
    st.builds(lambda base, some: sum(some, start=base), bases, modifiers),
)


@given(anything)
@settings(max_examples=60, deadline=None)
def test_a_kind_comes_back_from_its_text(kind: Kind) -> None:
    assert parse(str(kind)) == kind


@given(anything)
@settings(max_examples=60, deadline=None)
def test_a_kind_comes_back_from_json(kind: Kind) -> None:
    assert from_dict(json.loads(json.dumps(describe(kind)))) == kind


@given(anything)
@settings(max_examples=30, deadline=None)
def test_a_text_and_an_object_are_described_alike_to_the_letter(kind: Kind) -> None:
    assert json.dumps(describe(parse(str(kind)))) == json.dumps(describe(kind))


@pytest.mark.parametrize("name", KINDS)
def test_every_name_is_that_of_its_class_with_its_defaults(name: str) -> None:
    assert parse(name) == KINDS[name]()
    assert KINDS[name]().name == name


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_explains_itself_in_a_first_sentence(name: str) -> None:
    first = (KINDS[name].__doc__ or "").split("\n")[0]
    assert first.endswith(".")
    assert len(first) <= 100


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("dirichlet:0.3", Dirichlet(alpha=0.3)),
        ("dirichlet:0.3,5,error", Dirichlet(alpha=0.3, min_samples=5, small="error")),
        ("dirichlet:1e+2", Dirichlet(alpha=100)),
        ("classes:2", Classes(per_client=2)),
        ("label_sets:20,3", LabelSets(sets=20, labels=3)),
        ("label-sets:20,3,short=reuse", LabelSets(sets=20, labels=3, short="reuse")),
        ("rotation:0,180+quantity", Composite(IID(), (Rotation(angles=(0, 180)), Quantity()))),
        ("rotation:4", Rotation()),
        ("rotation:2", Rotation(angles=(0, 180))),
        ("rotation:3", Rotation(angles=(0, 120, 240))),
        ("rotation:12", Rotation(angles=tuple(range(0, 360, 30)))),
        ("rotation:7+quantity", parse(str(Rotation(angles=(7,)) + Quantity()))),
        ("label-groups+quantity", Composite(LabelGroups(), (Quantity(),))),
        ("quantity + dirichlet:0.1", Composite(Dirichlet(alpha=0.1), (Quantity(),))),
        ("label-groups:0-2/3,7", LabelGroups(groups=((0, 1, 2), (3, 7)))),
        ("homo", IID()),
        ("noniid-labeldir", Dirichlet(alpha=0.5, cap=True)),
        ("noniid-labeldir:0.1", Dirichlet(alpha=0.1, cap=True)),
        ("noniid-#label2", Classes(per_client=2)),
        ("noniid-#label3", Classes(per_client=3)),
        ("iid-diff-quantity", QuantityDirichlet(alpha=0.5)),
    ],
)
def test_the_texts_of_the_field_mean_what_they_should(text: str, kind: Kind) -> None:
    assert parse(text) == kind


@pytest.mark.parametrize("angle", [1.0, 2.5, 13.0, 30.0])
def test_other_angles_alone_are_angles(angle: float) -> None:
    assert parse(f"rotation:{angle:g}").angles == (angle,)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("dirchlet", "C020", "similar one exists: dirichlet"),
        ("", "C020", "use one of iid, dirichlet"),
        ("iid+", "C020", "use one of"),
        ("dirichlet:-0.3", "C021", "alpha = -0.3: input should be greater than 0"),
        ("dirichlet:nan", "C021", "alpha = nan"),
        ("dirichlet:0.3,beta=1", "C021", "beta = 1: no such field"),
        ("dirichlet:1,2,error,true,5", "C021", "field 5 = 5: no such field"),
        ("dirichlet:0,0", "C021", "min_samples = 0"),
        ("iid:3", "C021", "its fields and their defaults: stratified=False"),
        ("classes:2.5", "C021", "per_client = 2.5"),
        ("noniid-#label0", "C021", "per_client = 0"),
        ("rotation:0,360", "C021", "no two that mean the same"),
        ("label-groups:0/a", "C021", "groups.1.0 = a"),
        ("label-groups:0,0/1", "C021", "none twice"),
        ("quantity:1.5", "C021", "shares.0 = 1.5"),
        ("iid+shards", "C022", "only one base"),
        ("rotation+rotation:0,90", "C022", "rotation comes twice"),
    ],
)
def test_a_text_that_cannot_be_meant_is_refused_in_words(text: str, code: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert caught.value.code == code
    assert said in str(caught.value)
    assert caught.value.fix


def test_all_faults_of_a_text_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("dirichlet:-1,small=never")
    assert "alpha" in caught.value.why
    assert "small" in caught.value.why


def test_a_table_with_a_part_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="no part named shards"):
        from_dict({"kind": "iid+rotation", "shards": {}})


def test_a_table_overrides_what_its_text_says() -> None:
    assert from_dict({"kind": "dirichlet:0.3", "min_samples": 4}) == Dirichlet(0.3, 4)


@pytest.mark.parametrize("make", [lambda: Rotation(angles=()), lambda: LabelGroups(groups=())])
def test_no_group_at_all_is_refused(make: type) -> None:
    with pytest.raises(FieldError):
        make()


@pytest.mark.parametrize("kind", [Dirichlet(), Rotation(), IID() + Quantity()])
def test_a_kind_is_frozen_and_can_be_a_key(kind: Kind) -> None:
    assert {kind: 1}[kind] == 1
    with pytest.raises(AttributeError):
        kind.alpha = 2  # type: ignore[attr-defined]


def test_a_base_may_come_after_its_modifier() -> None:
    assert Rotation() + Shards() + Quantity() == Shards() + Rotation() + Quantity()


def test_a_modifier_alone_sits_on_iid() -> None:
    assert Composite.of(Rotation()) == IID() + Rotation()


def test_read_takes_a_kind_a_text_and_a_table() -> None:
    assert read(Shards()) == read("shards") == read({"kind": "shards"}) == Shards()


def test_modifiers_are_told_from_bases() -> None:
    found = {name for name, cls in KINDS.items() if issubclass(cls, Modifier)}
    seen = {"rotation", "permutation", "contrast", "noise", "blur"}
    assert found == {*seen, "quantity", "drift", "arrivals"}


def test_kinds_are_read_without_torch_and_numpy() -> None:
    code = (
        "import sys, coterie.data.kinds as k; k.parse('dirichlet:0.3+quantity');"
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
