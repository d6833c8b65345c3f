"""What the clients of a real federation agree on when they meet: all a server knows of them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from coterie.core import storage
from coterie.core.errors import ConfigError
from coterie.core.shell import command
from coterie.data.population import Population
from coterie.runs.whereabouts import FEDERATION

if TYPE_CHECKING:
    from coterie.engines.flower.exchange import RemoteClient

FILE = FEDERATION


@dataclass(frozen=True)
class Agreement:
    """What holds for the whole of a run, however often its server is started."""

    experiment: str  # a name that no other run has, by which clients keep their memories apart
    names: tuple[str, ...]
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    sizes: tuple[int, ...]  # 0: it was not there at the start
    held_out: tuple[str, ...] = ()  # names of those who train not and join when it is over

    @property
    def trained(self) -> Agreement:
        """The agreement of those alone who take part in the training."""
        sizes = dict(zip(self.names, self.sizes, strict=True))
        names = tuple(name for name in self.names if name not in self.held_out)
        return replace(self, names=names, sizes=tuple(sizes[name] for name in names))

    def save(self, folder: Path) -> None:
        """Write it into the folder of its run."""
        text = json.dumps(vars(self), indent=1) + "\n"
        storage.replace_file(folder / FILE, text.encode())

    @classmethod
    def load(cls, folder: Path) -> Agreement | None:
        """The agreement of a run, or None if its clients have not met."""
        if not (folder / FILE).exists():
            return None
        read = json.loads((folder / FILE).read_text())
        return cls(read.pop("experiment"), **{name: tuple(v) for name, v in read.items()})


def agree(clients: Mapping[str, RemoteClient], expected: Iterable[str]) -> Agreement:
    """One set of classes and one shape for all who came, by name; and for all who are expected,
    names in an order that everybody would choose."""
    shapes = {c.shape for c in clients.values()}
    if len(shapes) > 1:
        raise ConfigError(
            "the clients' samples have different shapes",
            code="C051",
            where="\n".join(f"{n}: {c.shape}" for n, c in sorted(clients.items())[:20]),
            fix="bring them to one shape; data.size resizes images",
        )
    kinds = {c.classes for c in clients.values()}
    classes = next(iter(kinds))
    if len(kinds) > 1:
        classes = tuple(sorted({c for kind in kinds for c in kind}, key=natural))
    names = tuple(sorted({*expected, *clients}, key=natural))
    sizes = tuple(clients[n].samples if n in clients else 0 for n in names)
    return Agreement(secrets.token_hex(16), names, classes, next(iter(shapes)), sizes)


def natural(name: str) -> tuple[int, int, str]:
    """Numbers by their value and before words.

    >>> sorted(["10", "b", "9"], key=natural)
    ['9', '10', 'b']
    """
    return (0, int(name), name) if name.isdecimal() else (1, 0, name)


class RemotePopulation(Population):
    """Clients whose data are elsewhere: only their names, their sizes and the classes are known.

    Of the data and the partition there is what they agreed on: no groups, none moves.
    """

    def __init__(self, agreed: Agreement) -> None:
        self.agreed, self.public = agreed, None
        self.data: Any = SimpleNamespace(classes=agreed.classes, shape=agreed.shape)
        self.partition: Any = SimpleNamespace(
            names=agreed.names, group=None, notes=(), moves=None, moves_at=0
        )

    def __len__(self) -> int:
        return len(self.agreed.names)

    @cached_property
    def sizes(self) -> Tensor:
        """(n,) training samples of each client, float64."""
        return torch.tensor(self.agreed.sizes, dtype=torch.float64)

    @cached_property
    def key(self) -> str:
        """What the run may rely on when it is resumed."""
        return json.dumps([self.agreed.experiment, self.agreed.classes, self.agreed.shape])

    def label_counts(self) -> Tensor:
        """(n, K) unknown: zeros."""
        return torch.zeros(len(self), self.classes, dtype=torch.long)


def refuse_federation(folder: Path) -> None:
    """Refuse what needs the clients' data for a run whose clients kept them."""
    if (folder / FILE).exists():
        raise ConfigError(
            "every client keeps its data on its own machine",
            code="C050",
            where=str(folder),
            fix=f"{command('serve', '--resume', folder, '...')} goes on with it, "
            f"{command('open', folder)} shows it",
        )
