"""The bits that every method leaves on every engine, to hold two versions against each other.

    python -m tests.bits bits.json [--engines serial,pool,stacked] [--methods fedavg,kin]

Run it against two checkouts (PYTHONPATH=src of each) and compare the files.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import torch

import coterie as ct
from coterie.methods import METHODS, find


def digest(*parts: bytes) -> str:
    """A short name of some bytes."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part)
    return whole.hexdigest()[:16]


def tensors(named: dict[str, torch.Tensor]) -> str:
    """A name for some tensors: their names, shapes, types and bits."""
    parts: list[bytes] = []
    for name, t in sorted(named.items()):
        parts += [name.encode(), str(t.dtype).encode(), str(tuple(t.shape)).encode()]
        parts.append(t.contiguous().numpy().tobytes())
    return digest(*parts)


def trace(name: str, engine: str, folder: Path) -> dict[str, Any]:
    """Three rounds of a method on an engine: its state, its clients' memories, its tables."""
    clients = ct.partition("digits", "rotation", clients=8, seed=3, public=2)
    cls: Any = find(name)
    result = ct.fit(cls(), clients, "cnn-s", rounds=3, seed=3, engine=engine, workers=2, out=folder)
    state = result.state
    return {
        "models": tensors({"models": state.models, "assign": state.assign}),
        "memory": tensors(dict(state.memory)),
        "metrics.csv": digest((folder / "metrics.csv").read_bytes()),
        "clusters.csv": digest((folder / "clusters.csv").read_bytes()),
        "saved": {
            str(file.relative_to(folder)): digest(file.read_bytes())
            for file in sorted((folder / "checkpoints").rglob("*.safetensors"))
        },
    }


def main() -> None:
    """Every method on every engine, into a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--engines", default="serial,pool,stacked")
    parser.add_argument("--methods", default=",".join(METHODS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        for engine in given.engines.split(","):
            for name in given.methods.split(","):
                key = f"{engine} {name}"
                found[key] = trace(name, engine, Path(place) / key)
                print(key, found[key]["models"], flush=True)
    given.file.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
