"""Plain values that may be sent, and how they are known."""

from __future__ import annotations

from typing import Any, ClassVar


class Sendable:
    """Plain values that may be sent: a frozen dataclass, known by the place of its definition.

    Tasks and all that they are made of are such. The place, not the bare name, is the key: two
    classes of one name in two modules stay two classes.
    """

    known: ClassVar[dict[str, type[Sendable]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Sendable.known[place_of(cls)] = cls

    @property
    def code(self) -> tuple[str, ...]:
        """Functions that are not coterie's and that it calls: "package.module:function"."""
        return ()


def place_of(cls: type) -> str:
    """Where a class is defined, "module:Class".

    >>> place_of(Sendable)
    'coterie.core.sendable:Sendable'
    """
    return f"{cls.__module__}:{cls.__qualname__}"
