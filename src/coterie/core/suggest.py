"""The known word that somebody most likely meant, and the sentence that says so."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word most like a given one, if any is alike.

    >>> closest("local_epoch", ["local_epochs", "lr"])
    'local_epochs'
    """
    return next(iter(get_close_matches(word, list(known), n=1)), None)


def similar(word: str, known: Iterable[str], what: str = "name") -> str:
    """The sentence that names the closest known word; empty if none is alike.

    >>> similar("fedprx", ["fedavg", "fedprox"])
    'a similar name exists: fedprox'
    """
    found = closest(word, known)
    return f"a similar {what} exists: {found}" if found else ""
