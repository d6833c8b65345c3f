"""Models for other programs: a file by itself that takes samples as they are stored.

.safetensors   the weights by name, and a card that says how to rebuild the network
.pt2           a program of torch.export; torch alone runs it
.onnx          for onnxruntime and whatever else reads ONNX (the extra `onnx`)
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from coterie.core import storage
from coterie.core.errors import ConfigError
from coterie.core.layout import Layout
from coterie.models.saved import KEY, TrainedModel, card, save_model
from coterie.models.spec import ModelSpec

Format = Literal["safetensors", "pt2", "onnx"]
FORMATS: tuple[Format, ...] = get_args(Format)


def format_of(path: Path) -> Format:
    """The format that a file's name asks for.

    >>> format_of(Path("runs/berlin.onnx"))
    'onnx'
    """
    for name in FORMATS:
        if path.suffix == f".{name}":
            return name
    raise ConfigError(
        f"{path.name} says no format for a model",
        code="C057",
        fix="end the name in .safetensors, .pt2 or .onnx",
    )


def export_model(
    path: Path, layout: Layout, row: Tensor, spec: ModelSpec, about: Mapping[str, Any] | None = None
) -> Path:
    """Write a model (P,) in the format that the name of the file ends in."""
    kind = format_of(path)
    if kind == "safetensors":
        return save_model(path, layout, row, spec, about)
    text, known = json.dumps(card(spec, about or {})), spec.scaling["peak"] is not None
    # Where only the client knows the scaling, what goes in is scaled already.
    net = layout.module(row)
    model = TrainedModel(net, spec, about or {}) if known else net
    storage.make_folder(path.parent)
    with TemporaryDirectory(dir=path.parent, prefix=".") as folder:
        temporary = Path(folder) / path.name
        with storage.speaking(path), quietly():
            (write_onnx if kind == "onnx" else write_pt2)(temporary, model.eval(), spec.shape, text)
        storage.publish(temporary, path)
    return path


def write_pt2(path: Path, model: nn.Module, shape: tuple[int, ...], text: str) -> None:
    """A program of torch.export for any number of samples; the card is its extra file."""
    program = torch.export.export(model, (torch.zeros(2, *shape),), dynamic_shapes=batches())
    torch.export.save(program, path, extra_files={f"{KEY}.json": text})


def write_onnx(path: Path, model: nn.Module, shape: tuple[int, ...], text: str) -> None:
    """An ONNX graph for any number of samples; the card is in its metadata."""
    if missing := [name for name in ("onnx", "onnxscript") if find_spec(name) is None]:
        raise ConfigError(
            f"ONNX files are written by {' and '.join(missing)}, which is not installed",
            code="C057",
            fix='pip install "coterie[onnx]", or take --format pt2 or safetensors',
        )
    program = torch.onnx.export(
        model,
        (torch.zeros(2, *shape),),
        input_names=["x"],
        output_names=["logits"],
        dynamic_shapes=batches(),
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    program.model.metadata_props[KEY] = text
    program.save(path)


def batches() -> tuple[dict[int, Any]]:
    """Any number of samples at once."""
    return ({0: torch.export.Dim("samples", min=1)},)


@contextmanager
def quietly() -> Iterator[None]:
    """Without what PyTorch's exporters tell their own developers."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
