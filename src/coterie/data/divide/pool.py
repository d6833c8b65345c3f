"""The samples that a base divides, and what it handed out."""

from __future__ import annotations

from dataclasses import dataclass, field

from coterie.data.divide.dealing import Ints


@dataclass(frozen=True)
class Pool:
    """The samples to divide. `y` numbers the labels that occur; `labels` says which they are."""

    y: Ints  # (N,) 0..K-1
    labels: Ints  # (K,)
    owner: Ints | None = None  # (N,)
    owners: tuple[str, ...] = ()  # what owners 0, 1, ... are called; empty: by their numbers

    def __len__(self) -> int:
        return len(self.y)

    @property
    def K(self) -> int:
        """How many labels occur."""
        return len(self.labels)


@dataclass(frozen=True)
class Dealt:
    """What a base handed out."""

    parts: list[Ints]  # the samples of each client
    group: Ints | None = None  # (n,) the planted group, where there is one
    names: tuple[str, ...] | None = None  # of the clients, where they have their own
    notes: list[str] = field(default_factory=list)
    blocks: bool = False  # groups are blocks of neighbours, i G // n
