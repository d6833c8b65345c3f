"""Whose models a method makes: one for everybody, one for each cluster, or one for each client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from coterie.core.types import Method, State

ModelKind = Literal["shared", "clustered", "personal"]
KINDS: tuple[ModelKind, ...] = get_args(ModelKind)
WORDS = {"shared": "shared", "personal": "own"}  # what records say where there is no cluster


def declared(method: object) -> ModelKind | None:
    """What a method, or its class, says of itself in `kind`; None if it says nothing.

    >>> class Mine:
    ...     kind = "personal"
    >>> declared(Mine()), declared(object())
    ('personal', None)
    """
    kind = getattr(method, "kind", None)
    return next((known for known in KINDS if known == kind), None)


def kind_of(method: Method, state: State | None = None) -> ModelKind:
    """What a method declares, or else what follows from how it tests and from who holds what.

    Without a state, one that says nothing may yet cluster.
    """
    if kind := declared(method):
        return kind
    if method.score.private != "none":
        return "personal"
    if state is None:
        return "clustered"
    held = state.assign[state.placed]
    return kind_from_shape(len(held.unique()), len(held))


def kind_from_shape(models: int, clients: int) -> ModelKind:
    """What so many models in the hands of so many clients look like.

    >>> kind_from_shape(1, 8), kind_from_shape(3, 8), kind_from_shape(8, 8)
    ('shared', 'clustered', 'personal')
    """
    if models < 2:
        return "shared"
    return "personal" if models == clients else "clustered"


def held_words(kind: ModelKind, assign: Sequence[int]) -> list[str]:
    """The model of each client as records have it: a cluster's number, "own", "shared" or "".

    >>> held_words("clustered", [1, -1]), held_words("personal", [0, -1])
    (['1', ''], ['own', ''])
    """
    return ["" if a < 0 else WORDS.get(kind, str(a)) for a in assign]


def held_number(word: str, client: int) -> int:
    """The model that such a word stands for, of the client at this place; -1: none.

    >>> [held_number(word, 5) for word in ("3", "own", "shared", "")]
    [3, 5, 0, -1]
    """
    return {"own": client, "shared": 0, "": -1}[word] if not word.isdecimal() else int(word)
