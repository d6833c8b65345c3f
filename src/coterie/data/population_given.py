"""Clients that a user brings along, as data and a partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coterie.core.client import Client
from coterie.core.errors import DataError
from coterie.data.dataset import Data
from coterie.data.partition import Partition, numbered_groups

Given = Client | tuple[Any, ...]  # (x, y) or (x, y, x_test, y_test), tensors or arrays


def given(
    clients: Sequence[Given],
    classes: int | Sequence[str] | None = None,
    group: Sequence[int] | None = None,
) -> tuple[Data, Partition]:
    """One set of data and the partition that cuts it into these clients again."""
    if not clients:
        raise DataError("there are no clients", code="D043", fix="bring at least one")
    names = [c.name if isinstance(c, Client) and c.name else str(i) for i, c in enumerate(clients)]
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise unfit(name, f"{times} clients have this name", "give every client its own name")
    four = [quarters(client, name) for client, name in zip(clients, names, strict=True)]
    for name, (x, *_, x_test, _) in zip(names, four, strict=True):
        for t in (x, x_test):
            if t.shape[1:] != four[0][0].shape[1:]:
                shapes = f"{tuple(t.shape[1:])} and {tuple(four[0][0].shape[1:])}"
                raise unfit(name, f"samples of shapes {shapes}", "bring samples of one shape")
    x, y, x_test, y_test = map(torch.cat, zip(*four, strict=True))
    highest = max(int(y.max()), int(y_test.max()) if len(y_test) else 0)
    known = classes if isinstance(classes, Sequence) else range(classes or highest + 1)
    if highest >= len(known):
        fix = f"say classes = {highest + 1}, or number the labels from 0"
        raise unfit("", f"label {highest} with {len(known)} classes", fix)
    if group is not None and len(group) != len(clients):
        raise unfit("", f"{len(group)} groups for {len(clients)} clients", "give each its group")
    data = Data("clients", x, y, tuple(map(str, known)), x_test, y_test, peak=1.0)
    sizes, tests = [len(f[0]) for f in four], [len(f[2]) for f in four]
    return data, Partition(
        train=ranges(sizes),
        test=ranges(tests),
        test_source="official",
        pool="train",
        names=tuple(names),
        angle=torch.zeros(len(clients), dtype=torch.float64),
        group=None if group is None else numbered_groups([np.asarray(group)]),
        arguments={
            "kind": {"kind": "given", "names": names, "sizes": sizes, "tests": tests},
            "data": data.fingerprint,
        },
    )


def ranges(sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """The indices of rows that lie one client after the other."""
    ends = np.cumsum(sizes)
    return tuple(torch.arange(int(e) - s, int(e)) for e, s in zip(ends, sizes, strict=True))


def quarters(client: Given, name: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, y, x_test, y_test of one client, checked; without a test set, an empty one."""
    if isinstance(client, Client):
        client = (client.x, client.y, client.x_test, client.y_test)
    if len(client) not in (2, 4):
        raise unfit(name, f"{len(client)} parts", "bring (x, y) or (x, y, x_test, y_test)")
    parts = [torch.as_tensor(part) for part in client]
    if len(parts) == 2:
        parts += [parts[0][:0], parts[1][:0]]
    x, y, x_test, y_test = parts
    for samples, labels in ((x, y), (x_test, y_test)):
        if labels.ndim != 1 or len(samples) != len(labels):
            why = f"{len(samples)} samples with labels {tuple(labels.shape)}"
            raise unfit(name, why, "give one label for each sample")
        if len(labels) and (labels.long() != labels).any() | (labels < 0).any():
            raise unfit(name, "labels that are not 0, 1, 2, ...", "number the labels from 0")
        if not samples.float().isfinite().all():
            raise unfit(name, "values that are not finite", "clean or fill them first")
    if not len(y):
        raise unfit(name, "no training sample", "leave this client out")
    return x.float(), y.long(), x_test.float(), y_test.long()


def unfit(name: str, why: str, fix: str) -> DataError:
    """The error about clients that do not fit together."""
    who = f"client {name} does" if name else "the clients do"
    return DataError(f"{who} not fit in", code="D043", why=why, fix=fix)
