"""What can go wrong, in words a user can act on: what happened, where, why, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from coterie.core.codes import FAMILIES


class CoterieError(Exception):
    """An error that speaks to the user, with a documented `code`."""

    def __init__(
        self, what: str, *, code: str, where: str = "", why: str = "", fix: str = ""
    ) -> None:
        super().__init__(what)
        self.what, self.code, self.where, self.why, self.fix = what, code, where, why, fix

    @property
    def exit(self) -> int:
        """The exit code for the shell, which all codes of a family share."""
        return FAMILIES[self.code[0]].exit

    def __str__(self) -> str:
        lines = [self.what]
        for name, text in (("where", self.where), ("why", self.why), ("fix", self.fix)):
            if text:
                first, *rest = text.splitlines()
                lines += [f"  {name:<6} {first}", *(f"         {line}" for line in rest)]
        return "\n".join(lines)


YOUR_CODE = (Exception, SystemExit)  # what code of a user's may raise: sys.exit is no way out here


class ConfigError(CoterieError):
    """An experiment file, option or hyper-parameter that cannot be meant (codes C...)."""


class Fault(NamedTuple):
    """What is wrong with one field: its name, what was given, and why that cannot be."""

    field: str
    given: Any
    reason: str

    def __str__(self) -> str:
        return f"{self.field} = {self.given}: {self.reason}"


class FieldError(ConfigError, ValueError):
    """A dataclass that cannot have the values it was given: a method, a solver, a partition."""

    def __init__(self, what: str, faults: Sequence[Fault], *, fix: str) -> None:
        super().__init__(what, code="C060", why="\n".join(map(str, faults)), fix=fix)
        self.faults = tuple(faults)


class DataError(CoterieError):
    """Data that is missing, damaged, or cannot be divided as asked (codes D...)."""


class QuorumError(CoterieError):
    """Too few clients answered, or came at all (codes Q...)."""


class CheckpointError(CoterieError):
    """A run that cannot be continued from what is on disk (codes K...)."""


class DivergedError(CoterieError):
    """Training that left the finite numbers (codes R...)."""


class NotFiniteError(DivergedError, ValueError):
    """Numbers that a server computes with and that are not finite, or were made so by it."""

    def __init__(self, what: str, *, where: str = "") -> None:
        super().__init__(
            what,
            code="R015",
            where=where,
            why="numbers that clients sent are so large that computing with them overflows; the "
            "learning rate is probably too high, or a client sends nonsense",
            fix="train.lr a tenth of what it is, or leave out the client whose update is largest; "
            "the last whole round is still saved",
        )


class CoterieWarning(UserWarning):
    """Something a user should know that stops nothing, where no run is there to tell it."""


class StorageError(CoterieError):
    """A disk that is full or refuses to be written (codes S...)."""


class AccessError(CoterieError):
    """A key or certificate that is missing, unusable or not accepted (codes A...)."""


class ClientError(CoterieError):
    """The user's own code raised inside a client (codes U...); its exception is the cause."""
