"""One model as a file that is used without the run that made it: safetensors, never a pickle.

The tensors have the names of the module's `state_dict`. The metadata holds, under "coterie", all
else that is needed: a `ModelSpec` and whose model it is, as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from coterie.core import storage
from coterie.core.errors import CheckpointError, DataError
from coterie.core.layout import Layout
from coterie.core.version import __version__
from coterie.models.spec import ModelSpec

Samples = Tensor | NDArray[Any]  # (N, ...) as they are stored

FORMAT = 1
KEY = "coterie"  # of the metadata, in every kind of file


class TrainedModel(nn.Module):
    """A trained network that takes samples as they are stored: it scales them itself.

    `net` is the network alone, `spec` what it was made for, `about` whose model it is.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, net: nn.Module, spec: ModelSpec, about: Mapping[str, Any]) -> None:
        super().__init__()
        self.net, self.spec, self.about = net, spec, dict(about)
        self.peak: float | None = spec.scaling["peak"]
        for name, none in (("mean", 0.0), ("std", 1.0)):
            numbers = none if self.peak is None else spec.scaling[name]
            self.register_buffer(name, torch.tensor(numbers, dtype=torch.float32))
        self.eval()

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the outputs."""
        return self.spec.classes

    def forward(self, x: Tensor) -> Tensor:
        """(N, K) logits of samples as they are stored, (N, ...)."""
        if self.peak is None:
            raise unscaled(self.about)
        logits: Tensor = self.net((x.float() / self.peak - self.mean) / self.std)
        return logits

    def probabilities(self, x: Samples, batch: int = 512) -> Tensor:
        """(N, K) how likely each class is, of samples as they are stored."""
        x = self.checked(x)
        with torch.no_grad():
            parts = [self(x[i : i + batch]).softmax(1) for i in range(0, max(1, len(x)), batch)]
        return torch.cat(parts)

    def checked(self, x: Samples) -> Tensor:
        """Samples that the network can be given; NaN would be of some class, too."""
        x = torch.as_tensor(x)
        if x.ndim != 1 + len(self.spec.shape) or tuple(x.shape[1:]) != tuple(self.spec.shape):
            raise DataError(
                f"samples of shape {tuple(x.shape)}",
                code="D018",
                why=f"the model takes (N, {', '.join(map(str, self.spec.shape))})",
                fix="bring one row for each sample: x[None] for a single one",
            )
        if x.is_floating_point() and not x.isfinite().all():
            raise DataError(
                "samples with values that are not finite",
                code="D013",
                fix="fill or leave out the samples with missing values",
            )
        return x

    def predict(self, x: Samples) -> list[str]:
        """The name of the likeliest class of each sample."""
        return [self.classes[k] for k in self.probabilities(x).argmax(1).tolist()]


def card(spec: ModelSpec, about: Mapping[str, Any]) -> dict[str, Any]:
    """All that goes with a model's numbers, as JSON holds it: `about` says whose they are."""
    return {"format": FORMAT, "coterie": __version__, **about, **spec.plain()}


def save_model(
    path: Path, layout: Layout, row: Tensor, spec: ModelSpec, about: Mapping[str, Any] | None = None
) -> Path:
    """Write a model (P,) as a safetensors file with its card: whole, or not at all."""
    numbers = layout.module(row).state_dict()
    tensors = {name: t.detach().clone().contiguous() for name, t in numbers.items()}
    text = json.dumps(card(spec, about or {}))
    storage.make_folder(path.parent)
    storage.replace_file(path, to_bytes(tensors, {"format": "pt", KEY: text}))
    return path


def read_model(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a model's file by name, and its card."""
    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(KEY)
            if text is None:
                raise unusable(path, "it has no metadata of coterie's")
            return {name: file.get_tensor(name) for name in file.keys()}, json.loads(text)  # noqa: SIM118
    except (OSError, SafetensorError, ValueError) as cause:
        raise unusable(path, str(cause)) from cause


def read_card(path: Path) -> dict[str, Any]:
    """All that a model's file holds but its numbers; empty if it is none of coterie's."""
    try:
        with safe_open(path, "pt") as file:
            return dict(json.loads((file.metadata() or {}).get(KEY, "{}")))
    except (OSError, SafetensorError, ValueError):
        return {}


def unusable(path: Path, why: str) -> CheckpointError:
    """The error of a file that no model can be made of."""
    return CheckpointError(
        f"{path} is no model that can be used",
        code="K014",
        why=why,
        fix="name a file that `coterie export`, Result.save or a client wrote",
    )


def unscaled(about: Mapping[str, Any]) -> CheckpointError:
    """The error of a model whose samples only its client can scale."""
    return CheckpointError(
        "this model does not know how its samples are scaled",
        code="K015",
        where=", ".join(f"{k} {v}" for k, v in about.items()),
        why="in a federation every client scales by the numbers of its own data",
        fix="use the file on the client's own machine, or scale the samples yourself and use "
        "the network alone",
    )
