"""Models read again from their files, in every format that they are written in."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from coterie.core import checks
from coterie.core.errors import CheckpointError, ConfigError
from coterie.models.saved import KEY, TrainedModel, read_model, unusable
from coterie.models.spec import Given, ModelSpec


def load_model(
    path: str | Path, *, model: Given | None = None, allow_code: bool = False
) -> TrainedModel:
    """The model that `Result.save`, `coterie export` or a client of a federation wrote.

    It takes samples as they are stored and answers logits; `.net` is the network alone, or the
    program of a .pt2 or .onnx file. A network that has no name is given again as `model`; one
    that is not coterie's is imported, and a .pt2 file is read, only with `allow_code`.
    """
    path = checks.path(path, "path", "model.safetensors")
    if path.suffix in PROGRAMS:
        return program(path, allow_code)
    tensors, known = read_model(path)
    try:
        spec = ModelSpec.from_plain(known)
        # What a file declares takes no memory until its own numbers are found to fit.
        with nullcontext() if model is not None or spec.foreign else torch.device("meta"):
            net = spec.module(model, allow_code=allow_code)
    except (TypeError, ValueError, RuntimeError) as cause:
        raise unusable(path, str(cause)) from cause
    expected, found = shapes(net.state_dict()), shapes(tensors)
    if expected != found:
        name = min(expected.items() ^ found.items())[0]
        why = f"{name} is {found.get(name, 'absent')} there, the network has {expected.get(name)}"
        raise unusable(path, why)
    net.load_state_dict(tensors, assign=True)
    return TrainedModel(net, spec, owner(known, spec))


def shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor."""
    return {name: tuple(t.shape) for name, t in tensors.items()}


def owner(known: Mapping[str, Any], spec: ModelSpec) -> dict[str, Any]:
    """What a card says of whose model it is."""
    spec_keys = {*spec.plain(), "format", "coterie"}
    return {k: v for k, v in known.items() if k not in spec_keys}


class Program(TrainedModel):
    """A model whose network scales the samples itself."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, K) logits of samples as they are stored, (N, ...)."""
        logits: Tensor = self.net(x.float())
        return logits


class Foreign(nn.Module):
    """A network that another library runs; it only predicts, and knows no `train` or `eval`."""

    def __init__(self, run: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.run = run

    def forward(self, x: Tensor) -> Tensor:
        """(N, K) logits."""
        with torch.no_grad():
            return self.run(x)


def program(path: Path, allow_code: bool) -> TrainedModel:
    """The model in a file that holds a program and its card, not weights by name."""
    if not path.is_file():
        raise unusable(path, "there is no such file")
    if path.suffix == ".pt2" and not allow_code:
        raise runs_code(path)
    if path.suffix == ".onnx" and find_spec("onnxruntime") is None:
        raise no_runtime(path)
    try:
        net, text = PROGRAMS[path.suffix](path)
        known = dict(json.loads(text))
        spec = ModelSpec.from_plain(known)
        # Where only the client knows the scaling, what goes in is scaled already.
        kind = TrainedModel if spec.scaling["peak"] is None else Program
        found = kind(net, spec, owner(known, spec))
        answer = tuple(net(torch.zeros(2, *spec.shape)).shape)
    except Exception as cause:  # whatever the readers of other libraries raise
        raise unusable(path, " ".join(str(cause).split())[:300]) from cause
    if answer != (2, len(spec.classes)):
        raise unusable(
            path, f"it answers {answer[1:]} for the {len(spec.classes)} classes it names"
        )
    return found


def read_pt2(path: Path) -> tuple[nn.Module, str]:
    """The program of a .pt2 file, and its card."""
    extra = {f"{KEY}.json": ""}
    net = torch.export.load(path, extra_files=extra).module()
    return Foreign(lambda x: net(x)), extra[f"{KEY}.json"]


def read_onnx(path: Path) -> tuple[nn.Module, str]:
    """The graph of an .onnx file, and its card."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    net = Foreign(lambda x: torch.from_numpy(session.run(None, {"x": x.numpy()})[0]))
    return net, session.get_modelmeta().custom_metadata_map[KEY]


PROGRAMS = {".pt2": read_pt2, ".onnx": read_onnx}


def runs_code(path: Path) -> ConfigError:
    """The error of a file that can run code when it is read."""
    return ConfigError(
        f"{path} may run code when it is read",
        code="C036",
        why="a .pt2 file is a program, and PyTorch reads parts of it as pickles",
        fix="say so if you know where it is from: --allow-code, or allow_code=True in Python; "
        ".safetensors and .onnx files run no code",
    )


def no_runtime(path: Path) -> CheckpointError:
    """The error of a graph that nothing here can run."""
    return CheckpointError(
        f"{path} is run by onnxruntime, which is not installed",
        code="K014",
        fix='pip install "coterie[onnx]", or take a .safetensors export',
    )
