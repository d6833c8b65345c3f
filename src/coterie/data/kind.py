"""What a kind of partition is: a base, a modifier on it, and their composition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from coterie.core.bounds import dataclass as checked
from coterie.core.errors import ConfigError
from coterie.data.divide.kind_text import fields_as_text, kebab


class Kind:
    """A way to divide data. `a + b` is both: one base and the modifiers on it."""

    groups_in: ClassVar[str] = ""  # the field that says how many groups the clients come in
    labels_in: ClassVar[str] = ""  # the field that says how many labels the data must have
    # Fields that came later: at their default they are left out of records, so that keys stay.
    later: ClassVar[tuple[str, ...]] = ()
    # Of these, those that resolved files leave out at their default, so that older runs go on.
    unsaid: ClassVar[tuple[str, ...]] = ()
    needs_owners: ClassVar[bool] = False  # each owner in the data is a client, all if none is said

    @property
    def name(self) -> str:
        """The name in files and on the command line."""
        return kebab(type(self))

    def __add__(self, other: Kind) -> Composite:
        return Composite.of(self, other)

    def __str__(self) -> str:
        """The shortest text that `parse` reads as this kind."""
        return ":".join(filter(None, (self.name, fields_as_text(self))))


class Modifier(Kind):
    """A change to what a base handed out."""


@checked(frozen=True)
class IID(Kind):
    """Everyone draws from the same pool: equal sizes, labels as they fall. One planted group.

    With `stratified`, everyone has the same proportions of labels, as AutoCFL's IID has it.
    """

    later = unsaid = ("stratified",)
    stratified: bool = False  # the same share of every label for everyone, not as they fall


@dataclass(frozen=True)
class Composite(Kind):
    """One base and the modifiers on it, in their order."""

    base: Kind
    modifiers: tuple[Modifier, ...] = ()

    @classmethod
    def of(cls, *kinds: Kind) -> Composite:
        """Any kinds together; without a base among them, on `IID`.

        >>> str(Composite.of(IID()))
        'iid'
        """
        flat = [part for kind in kinds for part in parts_of(kind)]
        bases = [k for k in flat if not isinstance(k, Modifier)]
        modifiers = [k for k in flat if isinstance(k, Modifier)]
        twice = [k.name for k in modifiers if sum(type(k) is type(m) for m in modifiers) > 1]
        if len(bases) > 1 or twice:
            names = " + ".join(k.name for k in flat)
            raise ConfigError(
                f"{names} cannot be composed",
                code="C022",
                why=f"{twice[0]} comes twice" if twice else "only one base can hand out samples",
                fix="name one base, before its modifiers, and no modifier twice",
            )
        return cls(bases[0] if bases else IID(), tuple(modifiers))

    def __str__(self) -> str:
        return "+".join(str(part) for part in parts_of(self))


def parts_of(kind: Kind) -> tuple[Kind, ...]:
    """A composition's base and modifiers; any other kind is its own only part."""
    return (kind.base, *kind.modifiers) if isinstance(kind, Composite) else (kind,)
