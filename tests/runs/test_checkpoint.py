from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import safetensors.torch
import torch

from coterie.core.errors import CheckpointError
from coterie.core.types import State
from coterie.runs import checkpoint
from tests.tiny import same

STATE = State(
    torch.randn(2, 5, generator=torch.Generator().manual_seed(0)),
    torch.tensor([0, 1, -1]),
    round=3,
    memory={"centres": torch.eye(2), "counts": torch.arange(3)},
)
MEMORIES = {0: {"head": torch.ones(2)}, 12: {"head": torch.zeros(2), "control": torch.ones(1)}}


def saved(folder: Path, round: int = 3) -> Path:
    state = State(STATE.models, STATE.assign, round, STATE.memory)
    return checkpoint.save(folder, state, MEMORIES, {"threads": 1})


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    loaded = checkpoint.load(saved(tmp_path))
    assert same(loaded.state, STATE)
    assert loaded.notes == {"threads": 1}
    assert loaded.memories.keys() == MEMORIES.keys()
    for i, kept in MEMORIES.items():
        assert all(torch.equal(loaded.memories[i][name], t) for name, t in kept.items())


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for t in range(5):
        saved(tmp_path, t)
    assert {p.name for p in tmp_path.iterdir()} == {"000003", "000004"}


@pytest.mark.parametrize("file", ["state.safetensors", "clients.safetensors", "manifest.json"])
@pytest.mark.parametrize("harm", ["flip", "cut", "remove", "empty"])
@pytest.mark.row(12)
def test_damage_is_found_and_the_round_before_is_used(tmp_path: Path, file: str, harm: str) -> None:
    saved(tmp_path, 3)
    target = saved(tmp_path, 4) / file
    data = bytearray(target.read_bytes())
    if harm == "flip":
        data[len(data) // 2] ^= 1
        target.write_bytes(data)
    elif harm == "cut":
        target.write_bytes(data[:-3])
    elif harm == "empty":
        target.write_bytes(b"")
    else:
        target.unlink()
    with pytest.raises(CheckpointError, match="damaged"):
        checkpoint.load(target.parent)
    loaded, faults = checkpoint.latest(tmp_path)
    assert loaded.state.round == 3
    assert file in faults[0].what


@pytest.mark.row(12)
def test_every_flipped_byte_is_found(tmp_path: Path) -> None:
    path = saved(tmp_path)
    for file in path.iterdir():
        data = file.read_bytes()
        for at in range(0, len(data), max(1, len(data) // 50)):
            harmed = bytearray(data)
            harmed[at] ^= 0x10
            file.write_bytes(harmed)
            with pytest.raises(CheckpointError):
                checkpoint.load(path)
        file.write_bytes(data)
    assert checkpoint.load(path).state.round == 3


@pytest.mark.row(12)
def test_nothing_usable_says_so(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no usable checkpoint"):
        checkpoint.latest(tmp_path)


def test_another_format_is_refused_with_both_numbers(tmp_path: Path) -> None:
    path = saved(tmp_path) / "manifest.json"
    manifest = json.loads(path.read_text()) | {"format": 99}
    manifest["sha256"] = checkpoint.seal(manifest)
    path.write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=r"format 99.*format 1"):
        checkpoint.load(path.parent)


def test_what_a_crash_left_is_swept_away(tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / ".000004.tmp").mkdir()
    (tmp_path / ".000004.tmp" / "state.safetensors").write_bytes(b"half")
    checkpoint.sweep(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["000003"]


def test_the_pieces_of_a_checkpoint_are_a_file_of_safetensors() -> None:
    tensors = {
        "models": torch.randn(3, 4),
        "assign": torch.tensor([0, -1, 2]),
        "report_é": torch.tensor(0.5, dtype=torch.float64),
        "turned": torch.arange(6.0).view(2, 3).T,
        "none": torch.empty(0, 5),
        "yes": torch.tensor([True, False, True]),
        "small": torch.tensor([1.5], dtype=torch.bfloat16),
    }
    data = b"".join(checkpoint.pieces(tensors))
    loaded = safetensors.torch.load(data)
    assert loaded.keys() == tensors.keys()
    assert all(torch.equal(loaded[name], t) for name, t in tensors.items())
    assert data == safetensors.torch.save({k: t.contiguous() for k, t in tensors.items()})
    assert checkpoint.digest(checkpoint.pieces(tensors)) == hashlib.sha256(data).hexdigest()
