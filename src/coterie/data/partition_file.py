"""Partitions on disk: JSON or npz, never pickle, with all the arguments they were made with."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coterie.core.errors import DataError
from coterie.core.reading import DAMAGE, expect_file, read_bytes, reason
from coterie.core.storage import make_folder, publish, write_file
from coterie.data.dataset import Data
from coterie.data.divide.bases import Dealt
from coterie.data.divide.dealing import cut
from coterie.data.partition import From, Partition, Test, arguments, complete, rows

FORMAT = "coterie-partition-1"
PLAIN = ("test_source", "pool", "names", "moves_at", "pattern", "span", "notes", "arguments", "key")
TENSORS = ("angle", "shift", "group", "relabel", "moves", "arrives")
REALS = ("angle", "shift")  # of them; the others are whole numbers


def save(partition: Partition, path: str | Path) -> Path:
    """Write a partition to a `.json` or `.npz` file, whole or not at all."""
    path = Path(path)
    plain = {"format": FORMAT} | {name: getattr(partition, name) for name in PLAIN}
    lists = {"train": partition.train, "test": partition.test}
    if partition.validation:
        lists["validation"] = partition.validation
    single = {name: value for name in TENSORS if (value := getattr(partition, name)) is not None}
    if path.suffix == ".npz":
        buffer = io.BytesIO()
        arrays = {name: value.numpy() for name, value in single.items()}
        for name, parts in lists.items():
            arrays[name] = torch.cat(parts).numpy()
            arrays[f"{name}_sizes"] = np.array([len(part) for part in parts])
        np.savez_compressed(buffer, plain=np.array(json.dumps(plain)), **arrays)
        content = buffer.getvalue()
    else:
        tables = {name: [part.tolist() for part in parts] for name, parts in lists.items()}
        values = {name: value.tolist() for name, value in single.items()}
        content = json.dumps(plain | values | tables).encode()
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write_file(temporary, content)
        publish(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def load_partition(path: str | Path, key: str | Mapping[str, Any] | None = None) -> Partition:
    """The partition in a file, which must have been made with this key, or these `arguments`.

    With the arguments, the error about a stale file names what differs.
    """
    path = Path(path)
    try:
        found = read_npz(path) if path.suffix == ".npz" else read_json(path)
        tensors: dict[str, Any] = {
            k: torch.as_tensor(found[k], dtype=torch.float64) if k in REALS else indices(found[k])
            for k in TENSORS
            if found.get(k) is not None
        }
        partition = Partition(
            train=tuple(map(indices, found["train"])),
            test=tuple(map(indices, found["test"])),
            validation=tuple(map(indices, found.get("validation", ()))),
            test_source=found["test_source"],
            pool=found["pool"],
            names=tuple(found["names"]),
            moves_at=found["moves_at"],
            pattern=found.get("pattern", "sudden"),
            span=found.get("span", 1),
            notes=tuple(found["notes"]),
            arguments=found["arguments"],
            **tensors,
        )
        lists = (partition.test, partition.validation or partition.test)
        lengths = {len(t) for t in (*lists, partition.names, partition.angle)}
        if found["format"] != FORMAT or lengths != {len(partition)}:
            raise ValueError(f"it is not a whole {FORMAT}")
    except (OSError, *DAMAGE, zipfile.BadZipFile, EOFError) as cause:
        raise DataError(
            f"{path} holds no partition",
            code="D042",
            why=f"missing {cause}" if isinstance(cause, KeyError) else reason(cause),
            fix="make it again and save it; index lists from elsewhere: read_indices",
        ) from cause
    check(partition, found["key"], key, path)
    return partition


def check(
    partition: Partition, stored: str, key: str | Mapping[str, Any] | None, path: Path
) -> None:
    """Refuse a partition whose arguments are not the ones asked for."""
    made, wanted = partition.arguments, key if isinstance(key, Mapping) else {}
    faults = [
        f"{name}: {made.get(name)!r} in the file, {wanted.get(name)!r} asked for"
        for name in sorted({*made, *wanted})
        if wanted and made.get(name) != wanted.get(name)
    ]
    if isinstance(key, str) and key != partition.key:
        faults.append(f"the file was made with {json.dumps(dict(made))}")
    if stored != partition.key:
        faults.append("its arguments were changed after it was saved")
    if faults:
        raise DataError(
            f"{path} holds another partition than the one asked for",
            code="D041",
            why="\n".join(faults),
            fix="delete the file to make it again, or ask for what it holds",
        )


def indices(values: Any) -> Tensor:
    """A list of indices as a tensor; numbers with a fraction are refused."""
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"indices must be whole numbers, not {array.dtype}")
    return torch.from_numpy(array.astype(np.int64))


def read_json(path: Path) -> dict[str, Any]:
    """The contents of a JSON file."""
    found = json.loads(read_bytes(path))
    if not isinstance(found, dict):
        raise ValueError("it is a list")
    return found


def read_npz(path: Path) -> dict[str, Any]:
    """The contents of an npz file."""
    expect_file(path)
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        found: dict[str, Any] = json.loads(str(arrays["plain"]))
        found |= {k: arrays[k] for k in TENSORS if k in arrays}
        for name in ("train", "test", "validation"):
            if name in arrays:
                found[name] = cut(arrays[name], arrays[f"{name}_sizes"])
    return found


def read_indices(path: str | Path) -> dict[str, list[int]]:
    """Client -> indices from another library's JSON: a map, a list of lists, or FL-bench's file.

    FL-bench's `train` and `test` lists of a client are joined; `from_indices` splits them anew.
    """
    try:
        found = json.loads(read_bytes(Path(path)))
        found = found.get("data_indices", found) if isinstance(found, dict) else found
        pairs = found.items() if isinstance(found, dict) else enumerate(found)
        lists = {
            str(name): sorted(chain(*part.values())) if isinstance(part, dict) else list(part)
            for name, part in pairs
        }
        for part in lists.values():
            indices(part)
    except (OSError, *DAMAGE) as cause:
        raise DataError(
            f"{path} holds no index lists",
            code="D042",
            why=reason(cause),
            fix='give JSON such as {"0": [3, 14], "1": [15, 92]}',
        ) from cause
    return lists


def from_indices(
    data: Data,
    parts: Sequence[Sequence[int]] | Mapping[str, Sequence[int]],
    seed: int = 0,
    *,
    test: Test = "own",
    test_share: float | None = None,
    pool: From = "train",
    validation_share: float = 0.0,
) -> Partition:
    """The partition that index lists made elsewhere stand for: a list, or client -> indices."""
    how: dict[str, Any] = {"test": test, "test_share": test_share, "pool": pool}
    made = arguments(data, "iid", len(parts), seed, **how, validation_share=validation_share)
    lists = list(parts.values()) if isinstance(parts, Mapping) else list(parts)
    held = [np.unique(indices(part).numpy()) for part in lists]
    everything, samples = np.concatenate(held), len(rows(data, pool)[0])
    if len(everything) and not 0 <= everything.min() <= everything.max() < samples:
        raise DataError(
            f"indices {everything.min()} to {everything.max()} for {samples:,} samples",
            code="D044",
            where=data.name,
            fix='use the data they were made for, or pool = "all" if they count its test set too',
        )
    digest = hashlib.sha256()
    for part in held:
        digest.update(len(part).to_bytes(8, "big") + part.tobytes())
    made["kind"] = {"kind": "indices", "sha256": digest.hexdigest()}
    names = tuple(map(str, parts)) if isinstance(parts, Mapping) else None
    return complete(data, Dealt(held, names=names), (), made)
