"""What the clients of a real federation agree on when they meet: all a server knows of them."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from coterie.core import storage
from coterie.core.client import Client
from coterie.core.errors import ConfigError
from coterie.core.shell import command
from coterie.data.course import Course
from coterie.data.population import Population
from coterie.runs.files import json_of, understanding
from coterie.runs.whereabouts import FEDERATION

if TYPE_CHECKING:
    from coterie.engines.flower.exchange import RemoteClient

OWN_CLASSES = 100  # that one client may bring in any case and nobody else has
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

    def of(self, names: Iterable[str]) -> Agreement:
        """The agreement of these clients alone."""
        sizes = dict(zip(self.names, self.sizes, strict=True))
        some = tuple(names)
        return replace(self, names=some, sizes=tuple(sizes.get(n, 0) for n in some))

    def save(self, folder: Path) -> None:
        """Write it into the folder of its run."""
        text = json.dumps(vars(self), indent=1) + "\n"
        storage.replace_file(folder / FILE, text.encode())

    def unfit(self, client: RemoteClient) -> str:
        """Why a client cannot take part, or nothing."""
        if client.shape != self.shape:
            return f"its samples have shape {client.shape}, the others' {self.shape}"
        if own := [c for c in client.classes if c not in set(self.classes)]:
            return f"{len(own):,} of its classes are not the federation's, such as {own[0]!r:.40}"
        declared = dict(zip(self.names, self.sizes, strict=True)).get(client.name, 0)
        if 0 < declared < client.samples:
            return f"it declares {client.samples:,} samples, and {declared:,} when it came first"
        return ""

    @classmethod
    def load(cls, folder: Path) -> Agreement | None:
        """The agreement of a run, or None if its clients have not met."""
        if not (folder / FILE).exists():
            return None
        with understanding(folder / FILE):
            read = json_of(folder / FILE)
            return cls(read.pop("experiment"), **{name: tuple(v) for name, v in read.items()})


def agree(clients: Mapping[str, RemoteClient], expected: Iterable[str]) -> Agreement:
    """One set of classes and one shape for all who came, by name; and for all who are expected,
    names in an order that everybody would choose. Whom it does not suit is `unfit`."""
    shape = usual_shape(clients)
    fit = {n: c for n, c in clients.items() if c.shape == shape}
    strange = {n for n in fit if too_many_classes(n, fit)}
    fit = {n: c for n, c in fit.items() if n not in strange}
    kinds = {c.classes for c in fit.values()}
    classes = next(iter(kinds))
    if len(kinds) > 1:
        classes = tuple(sorted({c for kind in kinds for c in kind}, key=natural))
    names = tuple(sorted({*expected, *fit}, key=natural))
    sizes = tuple(fit[n].samples if n in fit else 0 for n in names)
    return Agreement(secrets.token_hex(16), names, classes, shape, sizes)


def usual_shape(clients: Mapping[str, RemoteClient]) -> tuple[int, ...]:
    """The shape that most clients' samples have; refused where no shape has more than any other."""
    (shape, most), *others = Counter(c.shape for c in clients.values()).most_common(2)
    if others and others[0][1] == most:
        raise ConfigError(
            "the clients' samples have different shapes",
            code="C051",
            where="\n".join(f"{n}: {c.shape}" for n, c in sorted(clients.items())[:20]),
            fix="bring them to one shape; data.size resizes images",
        )
    return shape


def too_many_classes(name: str, clients: Mapping[str, RemoteClient]) -> bool:
    """Whether one of more than two clients brings more classes of its own than all others have.

    Every class makes everybody's model larger; so many that nobody else has seen are no data.
    """
    if len(clients) <= 2:
        return False
    others = {c for n, client in clients.items() if n != name for c in client.classes}
    return len(set(clients[name].classes) - others) > max(OWN_CLASSES, len(others))


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

    remote = True

    def __init__(
        self, agreed: Agreement, scaling: str = "standard", *, validates: bool = False
    ) -> None:
        self.agreed, self.public, self.recipe = agreed, None, None
        self._scaling = {"how": scaling, "peak": None, "mean": None, "std": None}
        self.data: Any = SimpleNamespace(classes=agreed.classes, shape=agreed.shape, about={})
        self.partition: Any = SimpleNamespace(
            names=agreed.names,
            group=None,
            notes=(),
            moves=None,
            arrives=None,
            course=Course(),
            arguments={},
            validation=validates,  # whether there are such samples: they are elsewhere, too
        )

    def __len__(self) -> int:
        return len(self.agreed.names)

    def client(self, i: int) -> Client:
        """Refused: nobody has them here."""
        raise ConfigError(
            "the clients of a federation keep their data on their own machines",
            code="C056",
            where=f"client {self.names[i]}",
            why="the server has their models and scores, and nothing else of them",
            fix="use what needs no data (models, clusters, history, place, export), or ask on the "
            "client's machine",
        )

    @property
    def scaling(self) -> Mapping[str, Any]:
        """Each client's own: only the kind is known."""
        return self._scaling

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
            fix=f"`{command('serve', '--resume', folder, '--certs', 'DIR/server')}` goes on with "
            f"it, `{command('open', folder)}` shows it",
        )
