"""Clients that a user brings along, as data and a partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from coterie.core.client import Client
from coterie.core.errors import DataError
from coterie.core.rng import stream
from coterie.core.units import count
from coterie.data.dataset import Data
from coterie.data.partition import Partition, numbered_groups
from coterie.data.readers.form import as_classes
from coterie.data.readers.raw import Array

Given = Client | Sequence[Any]  # (x, y) or (x, y, x_test, y_test), tensors or arrays
Several = Sequence[Given] | Mapping[str, Given]  # or by name
FORMS = "bring (x, y) or (x, y, x_test, y_test)"


class Quarters(NamedTuple):
    """One client's samples as tensors, its labels as they were given: whole numbers or words."""

    x: Tensor
    y: Array
    x_test: Tensor
    y_test: Array


def given(
    clients: Several,
    classes: int | Sequence[str] | None = None,
    group: Sequence[int] | None = None,
    test_share: float = 0.2,
    validation_share: float = 0.0,
) -> tuple[Data, Partition]:
    """One set of data and the partition that cuts it into these clients again."""
    people = named(clients)
    if not people:
        raise DataError("there are no clients", code="D043", fix="bring at least one")
    shares: dict[str, object] = {"test_share": test_share, "validation_share": validation_share}
    for name, share in shares.items():
        if not isinstance(share, Real) or not 0 <= float(share) < 1:
            raise unfit("", f"{name} = {share!r}", "give a share from 0 to below 1")
    if group is not None and len(group) != len(people):
        raise unfit(
            "",
            f"{count(len(group), 'group')} for {count(len(people), 'client')}",
            "give each its group",
        )
    four = {name: quarters(client, name) for name, client in people.items()}
    alone = [name for name, q in four.items() if untested(people[name]) and test_share]
    four |= {name: held_out(four[name], name, test_share) for name in alone}
    first = next(iter(four.values())).x.shape[1:]
    for name, q in four.items():
        for t in (q.x, q.x_test):
            if t.shape[1:] != first:
                shapes = f"{tuple(t.shape[1:])} and {tuple(first)}"
                raise unfit(name, f"samples of shapes {shapes}", "bring samples of one shape")
    x, x_test = (torch.cat(t) for t in zip(*((q.x, q.x_test) for q in four.values()), strict=True))
    y, y_test, names = classed(list(four.values()), classes)
    data = Data("clients", x, y, names, x_test, y_test, peak=1.0)
    sizes, tests = [len(q.y) for q in four.values()], [len(q.y_test) for q in four.values()]
    train, held = held_back(ranges(sizes), list(four), validation_share)
    return data, Partition(
        train=train,
        test=ranges(tests),
        test_source="official",
        pool="train",
        names=tuple(four),
        angle=torch.zeros(len(people), dtype=torch.float64),
        group=None if group is None else numbered_groups([np.asarray(group)]),
        validation=held,
        notes=(told(alone, len(four), test_share),) if alone else (),
        arguments={
            "kind": {"kind": "given", "names": list(four), "sizes": sizes, "tests": tests},
            "data": data.fingerprint,
            **({"validation_share": validation_share} if validation_share else {}),
        },
    )


def facts(
    columns: Mapping[str, Sequence[object]], names: Sequence[str]
) -> dict[str, dict[str, str]]:
    """What is known of each client, by its name.

    >>> facts({"region": ["north", 7]}, ["a", "b"])
    {'region': {'a': 'north', 'b': '7'}}
    """
    for column, values in columns.items():
        if len(values) != len(names):
            why = f"column {column}: {count(len(values), 'value')} for {len(names)} clients"
            raise unfit("", why, "give a value for each client")
    return {c: dict(zip(names, map(str, v), strict=True)) for c, v in columns.items()}


def named(clients: Several) -> dict[str, Given]:
    """Clients by name: the one each has or is given under, or else its place."""
    if isinstance(clients, str | Tensor) or not isinstance(clients, Iterable):
        raise unfit("", f"{type(clients).__name__} is no list of clients", f"{FORMS} of each")
    if isinstance(clients, Mapping):
        names, those = [str(name) for name in clients], list(clients.values())
    else:
        those = list(clients)
        names = [
            c.name if isinstance(c, Client) and c.name else str(i) for i, c in enumerate(those)
        ]
    if names:
        name, times = Counter(names).most_common(1)[0]
        if times > 1:
            raise unfit(name, f"{times} clients have this name", "give every client its own name")
    if "" in names:
        raise unfit("", "one has an empty name", "give every client a name, or a list of clients")
    return dict(zip(names, those, strict=True))


def untested(client: Given) -> bool:
    """Whether a client came without a word about how it is tested; a `Client` always says it."""
    return not isinstance(client, Client) and len(client) == 2


def held_out(q: Quarters, name: str, share: float) -> Quarters:
    """The client with a share of its samples as its test set; one at least is trained on."""
    count = min(round(share * len(q.y)), len(q.y) - 1)
    order = torch.randperm(len(q.y), generator=stream(0, "test", name))
    out, kept = order[:count].sort().values, order[count:].sort().values
    return Quarters(q.x[kept], q.y[kept.numpy()], q.x[out], q.y[out.numpy()])


def held_back(
    parts: tuple[Tensor, ...], names: Sequence[str], share: float
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """What clients train on, and a share of it that they choose by; one at least is trained on.

    >>> train, held = held_back((torch.arange(4),), ["a"], 0.25)
    >>> sorted(torch.cat([*train, *held]).tolist()), len(held[0])
    ([0, 1, 2, 3], 1)
    """
    if not share:
        return parts, ()
    train, held = [], []
    for name, part in zip(names, parts, strict=True):
        many = min(max(1, round(share * len(part))), len(part) - 1)
        order = torch.randperm(len(part), generator=stream(0, "validation", name))
        held.append(part[order[:many].sort().values])
        train.append(part[order[many:].sort().values])
    return tuple(train), tuple(held)


def told(alone: Sequence[str], of: int, share: float) -> str:
    """What a reader must know of clients that brought no test set."""
    who, tested = f"{len(alone)} of {of} clients", f"{100 * share:g} % of their samples"
    return f"{who} brought no test set: {tested} test them (test_share = {share:g})"


def classed(
    four: Sequence[Quarters], classes: int | Sequence[str] | None
) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """Labels in 0..K-1 and the K names: those that were said, or else the values there are."""
    if len({part.dtype.kind == "U" for q in four for part in (q.y, q.y_test) if len(part)}) > 1:
        raise unfit("", "labels that are words here and numbers there", "write all in one way")
    y, y_test = (
        np.concatenate(parts) for parts in zip(*((q.y, q.y_test) for q in four), strict=True)
    )
    if classes is None:
        y, tested, names = as_classes(y, y_test if len(y_test) else y[:0], None, str, str)
        assert tested is not None
        return torch.from_numpy(y), torch.from_numpy(tested), names
    names = tuple(map(str, range(classes) if isinstance(classes, int) else classes))
    return positions(y, names), positions(y_test, names), names


def numbered(q: Quarters, names: Sequence[str], client: str) -> tuple[Tensor, Tensor]:
    """A newcomer's labels as a run numbers its classes: by their names, or as places among them.

    Of a run whose labels began at 1, a label 1 is the class "1".
    """
    said = {str(label) for part in (q.y, q.y_test) for label in part.tolist()}
    by_name = said <= set(names)
    y, y_test = (part.astype(str) if by_name else part for part in (q.y, q.y_test))
    return positions(y, names, client), positions(y_test, names, client)


def positions(y: Array, names: Sequence[str], client: str = "") -> Tensor:
    """Labels as places among known classes: words by name; numbers are places, from 0 on."""
    if y.dtype.kind == "U":
        at = {name: i for i, name in enumerate(names)}
        if strange := next((word for word in y.tolist() if word not in at), None):
            why, fix = f"label {strange} is none of the classes", f"they are {listed(names)}"
            raise unfit(client, why, fix)
        return torch.tensor([at[word] for word in y.tolist()], dtype=torch.long)
    highest = int(y.max()) if len(y) else 0
    if highest >= len(names):
        fix = f"number the labels from 0, or say classes = {highest + 1}; left out, every value"
        raise unfit(client, f"label {highest} with {len(names)} classes", f"{fix} is a class")
    return torch.from_numpy(y)


def listed(names: Sequence[str]) -> str:
    """Some names of classes.

    >>> listed(["a", "b"])
    'a, b'
    """
    return ", ".join(names[:12]) + ", ..." * (len(names) > 12)


def ranges(sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """The indices of rows that lie one client after the other."""
    ends = np.cumsum(sizes)
    return tuple(torch.arange(int(e) - s, int(e)) for e, s in zip(ends, sizes, strict=True))


def quarters(client: Given, name: str) -> Quarters:
    """The parts of one client, checked; without a test set, an empty one."""
    if isinstance(client, Client):
        client = (client.x, client.y, client.x_test, client.y_test)
    if not isinstance(client, tuple | list):
        why = f"it is a {type(client).__name__}, no client"
        raise unfit(name, why, f"{FORMS} for each client, in a list or by name: {{name: (x, y)}}")
    if len(client) not in (2, 4):
        raise unfit(name, f"{len(client)} parts", FORMS)
    x, y = samples(client[0], name), labels(client[1], name)
    x_test, y_test = (
        (samples(client[2], name), labels(client[3], name)) if len(client) == 4 else (x[:0], y[:0])
    )
    for these, those in ((x, y), (x_test, y_test)):
        if len(these) != len(those):
            why = f"{len(these)} samples with labels {those.shape}"
            raise unfit(name, why, "give one label for each sample")
    if not len(y):
        raise unfit(name, "no training sample", "leave this client out")
    return Quarters(x, y, x_test, y_test)


def samples(part: Any, name: str) -> Tensor:
    """Samples as finite floats."""
    try:
        x = part if isinstance(part, Tensor) else torch.as_tensor(native(np.asarray(part)))
        x = x.detach().float()
    except (TypeError, ValueError, RuntimeError) as error:
        raise unfit(name, f"samples that are no numbers: {error}", "bring numbers") from error
    if not x.ndim:
        raise unfit(name, "samples that are a single number", "bring one row for each sample")
    if not x.isfinite().all():
        raise unfit(name, "values that are not finite", "clean or fill them first")
    return x


def native(x: Array) -> Array:
    """The same numbers as PyTorch takes them: no negative strides, this machine's byte order."""
    return np.ascontiguousarray(x, x.dtype.newbyteorder("="))


def labels(part: Any, name: str) -> Array:
    """(n,) labels as whole numbers from 0 on, or as words."""
    y = part.numpy() if isinstance(part, Tensor) else np.asarray(part)
    if y.ndim != 1:
        raise unfit(name, f"labels {y.shape}", "give one label for each sample")
    if not y.size:
        return y.astype(np.int64)
    if y.dtype.kind in "biuf":
        if not np.isfinite(y).all() or (y != np.trunc(y)).any() or (y < 0).any():
            raise unfit(name, "labels that are not 0, 1, 2, ...", "number the labels from 0")
        return y.astype(np.int64)
    if y.dtype.kind == "U" or all(isinstance(value, str) for value in y):
        return y.astype(str)
    raise unfit(name, f"labels of type {y.dtype}", "labels are whole numbers or words")


def unfit(name: str, why: str, fix: str) -> DataError:
    """The error about clients that do not fit together."""
    who = f"client {name} does" if name else "the clients do"
    return DataError(f"{who} not fit in", code="D043", why=why, fix=fix)
