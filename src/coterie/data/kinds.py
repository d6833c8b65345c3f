"""The kinds of partition: plain values that say who holds what, printed, compared, put in files.

A *base* hands out samples, a *modifier* changes what a base handed out, and `+` composes them:
`LabelGroups() + Quantity()`. A modifier alone sits on `IID`. Nothing here needs torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from annotated_types import MinLen
from pydantic import field_validator

from coterie.core.bounds import Count, Finite, Positive, Share, Whole
from coterie.core.bounds import dataclass as checked
from coterie.core.errors import ConfigError
from coterie.data.divide.kind_text import (
    build,
    field_values,
    fields_in_text,
    kebab,
    numbers,
    turns,
    unknown_kind,
)
from coterie.data.image_kinds import Blur as Blur
from coterie.data.image_kinds import Contrast as Contrast
from coterie.data.image_kinds import Noise as Noise
from coterie.data.kind import IID as IID
from coterie.data.kind import Composite as Composite
from coterie.data.kind import Kind as Kind
from coterie.data.kind import Modifier as Modifier
from coterie.data.kind import parts_of as parts_of

Shares = Annotated[tuple[Share, ...], MinLen(1)]
AUTOCFL = ((0, 1, 2), (3, 4, 5, 6), (4, 5, 6, 7, 8, 9), tuple(range(10)))


@checked(frozen=True)
class Dirichlet(Kind):
    """Each label's samples are shared out by a Dirichlet draw over the clients.

    For every label k on its own, q_k ~ Dir(alpha) over all n clients, and client i gets the share
    q_ki of that label: sizes are unbalanced too. With `cap`, label after label, a client that has
    N / n samples gets no more, as in NIID-Bench. While someone has fewer than `min_samples`, all is
    drawn again, at most 1,000 times (fewer if that would take more than a million numbers).
    """

    alpha: Positive = 0.5  # smaller is more skewed; papers use 0.1 to 1
    min_samples: Count = 10  # the least a client may hold, training and test together
    small: Literal["repair", "error"] = "repair"  # move samples from the largest clients | refuse
    cap: bool = False  # nobody is filled beyond N / n samples; noniid-labeldir: true

    later = ("cap",)


@checked(frozen=True)
class LabelSkew(Kind):
    """Each client owns a share of the labels, drawn at random (FedClust's 20 and 30 %).

    The samples of a label are dealt near equally to its owners, and every label has an owner.
    """

    share: Share = 0.2  # of the labels, at least one label


@checked(frozen=True)
class Shards(Kind):
    """Samples sorted by label are cut into equal shards, and each client gets some (McMahan)."""

    per_client: Count = 2  # shards of each client


@checked(frozen=True)
class Classes(Kind):
    """Each client owns k labels: label i mod K, and others at random (noniid-#labelK).

    The samples of a label are dealt near equally to its owners.
    """

    labels_in = "per_client"
    per_client: Count = 2  # labels of each client


@checked(frozen=True)
class QuantityDirichlet(Kind):
    """Sizes are one Dirichlet draw, labels as they fall (iid-diff-quantity). One planted group."""

    alpha: Positive = 0.5  # smaller is more unequal
    min_samples: Count = 10  # the least a client may hold, training and test together
    small: Literal["repair", "error"] = "repair"  # move samples from the largest clients | refuse


@checked(frozen=True)
class LabelGroups(Kind):
    """Clients come in groups, and each group has its own labels (AutoCFL's four).

    Client i of n is in group i G // n, the ground truth, unless `members` counts them. No sample is
    used twice. With `equal` every client holds the same number, evenly over its labels, as many as
    the scarcest label allows, and the rest is left out; without it all is dealt, a label near
    equally to its owners. With `alpha`, each client's labels are a Dirichlet draw over its group's.
    """

    later = unsaid = ("members", "alpha", "sizes")
    groups_in = "groups"
    groups: tuple[tuple[Whole, ...], ...] = AUTOCFL  # labels of each group; they may overlap
    equal: bool = True  # the same number of samples for everyone
    members: tuple[Count, ...] = ()  # clients of each group, as 12/8; none: equal groups
    alpha: Positive | None = None  # of the labels within a group; none: evenly
    sizes: tuple[Count, ...] = ()  # samples of each client, as 1400/1530/..., instead of equal ones

    @field_validator("members", "sizes", mode="before")
    @classmethod
    def _one_word(cls, value: Any) -> Any:
        return numbers(value)

    @field_validator("groups")
    @classmethod
    def _some(cls, groups: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        if not groups or not all(groups) or any(len(set(g)) < len(g) for g in groups):
            raise ValueError("every group must name at least one label, and none twice")
        return groups


@checked(frozen=True)
class LabelSets(Kind):
    """Each client draws one of a few random label sets, with so many samples a label (CFLGT).

    Its scenarios are (sets, labels) = (5, 2), (5, 5) and (20, 3). Ground truth: the distinct sets
    that occur. `reuse` hands out samples of a label again, in turn, to further clients.
    """

    labels_in = "labels"
    sets: Count = 5  # sets drawn
    labels: Count = 2  # labels in a set
    samples: Count = 50  # of each label for each client
    short: Literal["error", "reuse"] = "error"  # when a label has too few samples
    repeat: bool = False  # a set may be drawn twice; else no two are the same


@checked(frozen=True)
class ClusteredDirichlet(Kind):
    """Shuffled labels are split into groups, and each group's samples by a Dirichlet (FedDSMIC).

    p_c ~ Dir(alpha) over the clients for each group c of labels, counts multinomial, one draw.
    Ground truth: the group of labels that a client has most of.
    """

    labels_in = "groups"
    groups: Count = 3  # of labels
    alpha: Positive = 0.5  # the paper's: 0.05, 0.5, 1; 10 is near IID
    min_samples: Count = 20  # the least a client may hold, training and test together
    small: Literal["drop", "error", "topup"] = "drop"  # smaller clients: leave out | refuse | fill


@checked(frozen=True)
class Natural(Kind):
    """Each owner in the data (a writer) is a client; if fewer are asked for, a random choice."""

    needs_owners = True
    min_samples: Count = 1  # owners with fewer are left out


@checked(frozen=True)
class Rotation(Modifier):
    """Clients come in equal groups, and each group sees its images at its own angle.

    Client i of n is in group i G // n, the ground truth; a second grouping is dealt in turn within
    the first. Counter-clockwise; other angles than multiples of 90 are interpolated. A whole number
    from 2 to 12 alone is so many equal turns: `rotation:3` is `rotation:0,120,240`.
    """

    groups_in = "angles"
    angles: tuple[Finite, ...] = (0.0, 90.0, 180.0, 270.0)  # degrees, one a group

    @field_validator("angles")
    @classmethod
    def _turns(cls, angles: tuple[float, ...]) -> tuple[float, ...]:
        return turns(angles)


@checked(frozen=True)
class Permutation(Modifier):
    """Clients come in equal groups, and each group but the first has its labels permuted.

    Groups are assigned as in `Rotation`; no two groups have the same permutation.
    """

    groups_in = "groups"
    groups: Count = 4  # the first is the identity


@checked(frozen=True)
class Quantity(Modifier):
    """A few random clients keep only a share of their training samples (AutoCFL's imbalance).

    `each` clients for each share: 9 of 20 by default, and never more than half of all, the shares
    then being given in turn. Labels keep their proportions; test sets are not reduced.
    """

    shares: Shares = (0.1, 0.3, 0.6)  # what the reduced clients keep
    each: Count = 3  # clients for each share


@checked(frozen=True)
class Drift(Modifier):
    """From some round on, a few clients have the samples of a client of another planted group.

    They change places in pairs, so that groups keep their sizes; names, cohorts and private
    memories stay. The ground truth changes with them. A gradual change gives more and more of a
    client's samples to the other, in equal steps over `span` rounds, and the ground truth changes
    when half of them have gone; one that recurs goes back and forth every `span` rounds.
    """

    later = ("pattern", "span")
    round: Count = 10  # rounds trained before it happens
    share: Share = 0.2  # of clients that change, at least one pair
    pattern: Literal["sudden", "gradual", "recurring"] = (
        "sudden"  # all at once | in steps | to and fro
    )
    span: Count = 5  # rounds of a gradual change, or of each state that recurs


@checked(frozen=True)
class Arrivals(Modifier):
    """A few clients, drawn at random, come while the training goes on.

    Until its round a client is not there: nobody draws, asks, groups or tests it. Then the method
    gives it a model as it does to any newcomer, and it takes part like everybody else.
    """

    round: Count = 10  # rounds trained before the first of them comes
    share: Share = 0.2  # of clients that come late: at least one, and never all
    span: Count = 1  # rounds over which they come, one after another; 1: all at once


KINDS: dict[str, type[Kind]] = {
    kebab(cls): cls
    for cls in (
        *(IID, Dirichlet, LabelSkew, Shards, Classes, QuantityDirichlet, LabelGroups),
        *(LabelSets, ClusteredDirichlet, Natural, Rotation, Permutation, Contrast, Noise, Blur),
        *(Quantity, Drift, Arrivals),
    )
}
ALIASES: dict[str, Kind] = {"homo": IID(), "noniid-labeldir": Dirichlet(cap=True)}
ALIASES["iid-diff-quantity"] = QuantityDirichlet()


def parse(text: str) -> Kind:
    """The kind that a text means: names with their fields, joined by `+`.

    Fields are given by name or in order; the names of NIID-Bench are understood.

    >>> parse("dirichlet:0.3")
    Dirichlet(alpha=0.3, min_samples=10, small='repair', cap=False)
    >>> parse("label-groups:0-2/3-6+quantity").base.groups
    ((0, 1, 2), (3, 4, 5, 6))
    """
    kinds = [_parse_one(part) for part in re.split(r"\s*\+\s*(?![\d.])", text.strip().lower())]
    return kinds[0] if len(kinds) == 1 else Composite.of(*kinds)


def describe(kind: Kind) -> dict[str, Any]:
    """A kind as plain values that JSON and TOML can hold; `from_dict` reads it back.

    >>> describe(Shards())
    {'kind': 'shards', 'per_client': 2}
    """
    if isinstance(kind, Composite):
        parts = {part.name: recorded(part) for part in parts_of(kind)}
        return {"kind": "+".join(parts), **parts}
    return {"kind": kind.name, **recorded(kind)}


def recorded(kind: Kind) -> dict[str, Any]:
    """The fields of a kind as plain values, without those that came later and are at their default.

    >>> recorded(Drift(3)), recorded(Drift(3, span=2))["span"]
    ({'round': 3, 'share': 0.2}, 2)
    """
    usual = field_values(type(kind)())
    found = field_values(kind)
    return {k: v for k, v in found.items() if k not in kind.later or v != usual[k]}


def from_dict(table: Mapping[str, Any]) -> Kind:
    """The kind that a table means: `kind` is what `parse` reads, the rest are fields.

    A composition has a sub-table of fields for each of its parts.

    >>> from_dict({"kind": "dirichlet", "alpha": 0.1}).alpha
    0.1
    """
    table = dict(table)
    kind = parse(str(table.pop("kind", "iid")))
    if not isinstance(kind, Composite):
        return build(type(kind), {**field_values(kind), **table})
    parts = parts_of(kind)
    if strange := set(table) - {part.name for part in parts}:
        raise ConfigError(
            f"{kind} has no part named {', '.join(sorted(strange))}",
            code="C021",
            fix=f"give each part's fields in its own table: {', '.join(p.name for p in parts)}",
        )
    return Composite.of(
        *(build(type(p), {**field_values(p), **dict(table.get(p.name, {}))}) for p in parts)
    )


def read(kind: Kind | str | Mapping[str, Any]) -> Kind:
    """A kind, however it was given: itself, a text, or a table."""
    if isinstance(kind, Kind):
        return kind
    if isinstance(kind, str):
        return parse(kind)
    if isinstance(kind, Mapping):
        return from_dict(kind)
    raise ConfigError(
        f"{type(kind).__name__} is no kind of partition",
        code="C020",
        fix='write "dirichlet:0.3", or coterie.Dirichlet(0.3)',
    )


def count(value: int | tuple[Any, ...]) -> int:
    """How many a field asks for: a number, or a list of so many."""
    return len(value) if isinstance(value, tuple) else value


def _parse_one(text: str) -> Kind:
    """The kind that a text without `+` means."""
    name, _, rest = (part.strip() for part in text.partition(":"))
    if number := re.fullmatch(r"noniid-#label(\d+)", name):
        return build(Classes, {"per_client": number[1]})
    name = name.replace("_", "-")
    preset = ALIASES.get(name) or (KINDS[name]() if name in KINDS else None)
    if preset is None:
        raise unknown_kind(name, text, [*KINDS], [*ALIASES, "noniid-#label2"])
    given = fields_in_text(type(preset), rest)
    return build(type(preset), {**field_values(preset), **given})
