"""Checkpoints: a folder per round, hashed, written whole or not at all, and never a pickle.

checkpoints/000007/state.safetensors      the state: models, assign, memory
checkpoints/000007/clients.safetensors    what clients keep for themselves
checkpoints/000007/manifest.json          round, SHA-256 of both, where the records stood
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from torch import Tensor

from coterie.core import points, storage
from coterie.core.errors import CheckpointError
from coterie.core.reading import DAMAGE, read_bytes, reason
from coterie.core.types import State
from coterie.core.units import count

FORMAT = 1
DTYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
}  # by the names of the safetensors format
Memories = Mapping[int, Mapping[str, Tensor]]


@dataclass(frozen=True)
class Checkpoint:
    """The end of a round: the state, the clients' private memory, and notes of whoever saved it."""

    state: State
    memories: Memories
    notes: Mapping[str, Any]
    path: Path


def save(
    folder: Path,
    state: State,
    memories: Memories,
    notes: Mapping[str, Any],
    keep: int = 2,
    best: int | None = None,
) -> Path:
    """Write the checkpoint of `state.round` under `folder`; keep the newest `keep` of them, and
    that of the `best` round."""
    final = at(folder, state.round)
    temporary = folder / f".{final.name}.tmp"
    discard(temporary)
    storage.make_folder(temporary)
    files = {
        "state.safetensors": {"models": state.models, "assign": state.assign}
        | {f"memory.{name}": t for name, t in state.memory.items()},
        "clients.safetensors": {
            f"{i}.{name}": t for i, kept in sorted(memories.items()) for name, t in kept.items()
        },
    }
    hashes = {}
    for name, tensors in files.items():
        data = pieces(tensors)
        storage.write_file(temporary / name, data)
        hashes[name] = digest(data)
    manifest = {"format": FORMAT, "round": state.round, "files": hashes, "notes": dict(notes)}
    manifest["sha256"] = seal(manifest)
    storage.write_file(
        temporary / "manifest.json", json.dumps(manifest, indent=1, sort_keys=True).encode()
    )
    storage.sync_folder(temporary)
    discard(final)  # a round that is done again after a resume
    points.reach("commit", state.round)
    storage.publish(temporary, final)
    points.reach("committed", state.round)
    prune(folder, keep, best, below=state.round)
    return final


def prune(folder: Path, keep: int, best: int | None, *, below: int) -> None:
    """Remove all but the newest `keep`, that of the `best` round, and what is not `below` one."""
    for old in rounds(folder)[keep:]:
        if int(old.name) < below and (best is None or old != at(folder, best)):
            discard(old)


def pieces(tensors: Mapping[str, Tensor]) -> list[bytes | memoryview]:
    """A safetensors file as its header and a view of each tensor: nothing large is copied."""
    order = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    header: dict[str, Any] = {}
    data: list[bytes | memoryview] = []
    end = 0
    for name, t in order:
        begin, end = end, end + t.nbytes
        shape, dtype = list(t.shape), DTYPES[t.dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
        flat = t.detach().contiguous().reshape(-1).view(torch.uint8)
        data.append(flat.numpy().data)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little"), text, *data]


def digest(data: Iterable[bytes | memoryview]) -> str:
    """SHA-256 of the pieces of a file."""
    whole = hashlib.sha256()
    for piece in data:
        whole.update(piece)
    return whole.hexdigest()


def load(path: Path) -> Checkpoint:
    """Read one checkpoint and check every hash before a number is used."""
    manifest = read_manifest(path)
    tensors = {}
    for name, expected in manifest["files"].items():
        data = read(path / name)
        if hashlib.sha256(data).hexdigest() != expected:
            raise damaged(path / name, "its SHA-256 is not the one in the manifest")
        try:
            tensors[name] = from_bytes(data)
        except SafetensorError as cause:
            raise damaged(path / name, str(cause)) from cause
    own = tensors["state.safetensors"]
    state = State(
        models=own["models"],
        assign=own["assign"],
        round=manifest["round"],
        memory={k.removeprefix("memory."): t for k, t in own.items() if k.startswith("memory.")},
    )
    memories: dict[int, dict[str, Tensor]] = {}
    for key, t in tensors["clients.safetensors"].items():
        i, name = key.split(".", 1)
        memories.setdefault(int(i), {})[name] = t
    return Checkpoint(state, memories, manifest["notes"], path)


def latest(folder: Path) -> tuple[Checkpoint, list[CheckpointError]]:
    """The newest checkpoint that is whole, and what was wrong with any newer one."""
    faults: list[CheckpointError] = []
    for path in rounds(folder):
        try:
            return load(path), faults
        except CheckpointError as fault:
            faults.append(fault)
    raise CheckpointError(
        f"no usable checkpoint in {folder}",
        code="K001",
        why="\n".join(str(f.what) for f in faults) or "the run stopped before its first round",
        fix="start the run again",
    )


def passed_over(faults: Iterable[CheckpointError], used: Checkpoint) -> list[str]:
    """What there is to tell of damaged checkpoints, in whose place an older one is used."""
    return [f"{fault.what}; round {used.state.round} is used instead" for fault in faults]


def at(folder: Path, round: int) -> Path:
    """The checkpoint of a round."""
    return folder / f"{round:06d}"


def rounds(folder: Path) -> list[Path]:
    """The checkpoints of a folder, newest first."""
    return sorted((p for p in folder.glob("[0-9]*") if p.is_dir()), reverse=True)


def expect_rounds_left(folder: Path, wanted: int) -> None:
    """Refuse to go on to fewer rounds than the newest checkpoint has behind it."""
    done = max((int(path.name) for path in rounds(folder)), default=0)
    if wanted < done:
        raise CheckpointError(
            f"{folder.parent} has {count(done, 'round')} behind it, more than the {wanted} "
            "asked for",
            code="K020",
            why="a run goes on from its last whole round and cannot be taken back",
            fix=f"ask for {count(done, 'round')} or more; a run of {wanted} needs its own folder",
        )


def sweep(folder: Path) -> None:
    """Remove the checkpoints that were being written when a process died."""
    for path in folder.glob(".*.tmp"):
        discard(path)


def discard(path: Path) -> None:
    """Remove a checkpoint: first its name, so that a crash in between leaves no half of one."""
    if path.exists():
        doomed = path.with_name(f".{path.name.strip('.')}.old.tmp")
        if path != doomed:
            with storage.speaking(path):
                path.replace(doomed)
        storage.remove_folder(doomed)


def seal(manifest: Mapping[str, Any]) -> str:
    """SHA-256 of a manifest without its own seal."""
    body = {k: v for k, v in manifest.items() if k != "sha256"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def read_manifest(path: Path) -> dict[str, Any]:
    """A checkpoint's manifest, refused if a byte of it changed."""
    file = path / "manifest.json"
    try:
        manifest = json.loads(read(file))
        sealed = manifest["sha256"] == seal(manifest)
    except DAMAGE as cause:
        if isinstance(cause, CheckpointError):
            raise
        raise damaged(file, f"it is not a manifest ({reason(cause)})") from cause
    if not sealed:
        raise damaged(file, "its SHA-256 is not the one it carries")
    if manifest["format"] != FORMAT:
        raise CheckpointError(
            f"{file} has format {manifest['format']}, this version reads format {FORMAT}",
            code="K003",
            fix="resume it with the version of coterie that wrote it (see its run.toml)",
        )
    return dict(manifest)


def read(file: Path) -> bytes:
    """The bytes of a checkpoint's file."""
    try:
        return read_bytes(file)
    except OSError as cause:
        raise damaged(file, reason(cause)) from cause


def damaged(file: Path, why: str) -> CheckpointError:
    """A checkpoint that cannot be trusted."""
    return CheckpointError(
        f"{file} is damaged: {why}",
        code="K002",
        fix="the checkpoint before it is used instead, if there is one",
    )
