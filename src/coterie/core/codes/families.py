"""The families of error codes: what the letter before the digits means, and the exit code."""

from __future__ import annotations

from typing import NamedTuple


class Family(NamedTuple):
    """The codes that begin with one letter, and the exit code they all have."""

    title: str
    exit: int
    explanation: str
    fix: str


class Code(NamedTuple):
    """One error code: what happened, why it happens, what to do."""

    title: str
    explanation: str
    fix: str


FAMILIES: dict[str, Family] = {
    "C": Family(
        "configuration",
        2,
        "The experiment file, an option or a hyper-parameter cannot be meant. Nothing was run.",
        "Put right what the message names; `coterie check FILE` looks again without training.",
    ),
    "D": Family(
        "data",
        3,
        "The data is missing, damaged, or cannot be divided as asked. Nothing was run.",
        "Put right what the message names; `coterie data SOURCE` shows what can be read.",
    ),
    "A": Family(
        "access",
        8,
        "A key or certificate is missing, unusable, or was not accepted. Nothing was exchanged.",
        "`coterie certs DIR --clients NAMES` makes new ones; each side uses its own.",
    ),
    "Q": Family(
        "quorum",
        4,
        "Too few clients answered, or came at all. The last whole round is in the run's folder.",
        "Bring the clients back, then `coterie serve --resume RUN --certs DIR/server`.",
    ),
    "K": Family(
        "checkpoint",
        5,
        "The folder of a run cannot be used as it is. What is in it was not changed.",
        "Put right what the message names, or start the run again in another folder with --out.",
    ),
    "R": Family(
        "training",
        6,
        "Training left the finite numbers. The last whole round is in the run's folder.",
        "Lower train.lr, or look at the client that the message names; then resume.",
    ),
    "S": Family(
        "storage",
        7,
        "The disk is full or refuses to be written. The last whole round is intact.",
        "Make room or choose another folder, then `coterie resume RUN`.",
    ),
    "U": Family(
        "your code",
        1,
        "Your own model, method or data set raised an exception; it is shown above the message.",
        "Put it right there, then run or resume.",
    ),
    "X": Family(
        "unexpected",
        1,
        "Something happened that coterie did not foresee: most likely a fault in coterie.",
        "Run the command again with --debug and report what it prints.",
    ),
}


def explained_by_family(titles: dict[str, str]) -> dict[str, Code]:
    """Codes that need no more than their title: the rest is what their family says.

    >>> explained_by_family({"D010": "there are no samples"})["D010"].title
    'there are no samples'
    """
    told = {}
    for code, title in titles.items():
        family = FAMILIES[code[0]]
        told[code] = Code(title, family.explanation, family.fix)
    return told
