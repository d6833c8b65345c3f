"""Data and a partition brought together: whether they belong to each other."""

from __future__ import annotations

from dataclasses import replace

import torch

from coterie.core.errors import DataError
from coterie.data.dataset import Data
from coterie.data.partition import Partition


def merged(data: Data, partition: Partition) -> Data:
    """The data as the partition counts them: with `pool = "all"`, the test set at the end."""
    if partition.pool == "train" or data.x_test is None or data.y_test is None:
        return data
    x, y = torch.cat([data.x, data.x_test]), torch.cat([data.y, data.y_test])
    return replace(data, x=x, y=y, x_test=None, y_test=None, owner=None, owner_test=None, owners=())


def fits(data: Data, partition: Partition) -> None:
    """Refuse a partition that was made for other data."""
    test = 0 if data.y_test is None else len(data.y_test)
    samples = len(data.y) + (test if partition.pool == "all" else 0)
    limits = {"train": samples, "test": samples if partition.test_source == "own" else test}
    if partition.validation:
        limits["validation"] = samples
    faults = []
    for name, limit in limits.items():
        index = torch.cat(getattr(partition, name)) if len(partition) else torch.empty(0)
        low, high = (int(end) for end in index.aminmax()) if len(index) else (0, -1)
        if not 0 <= low <= high + 1 <= limit:
            what = f"the partition's {name} indices go from {low} to {high}"
            faults.append((what, f"{limit:,} samples there"))
    if partition.relabel is not None and (permuted := partition.relabel.shape[1]) != len(
        data.classes
    ):
        faults.append((f"the partition permutes {permuted} labels", f"{len(data.classes)} classes"))
    if faults:
        what, has = faults[0]
        fix = "use the data the partition was made for"
        raise DataError(what, code="D044", why=f"{data.name} has {has}", fix=fix)
