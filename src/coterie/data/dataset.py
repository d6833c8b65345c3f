"""A labelled set as it was read, before anybody divides it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from coterie.core.units import count

Scaling = Literal["standard", "unit", "none"]


@dataclass(frozen=True)
class Scaler:
    """The numbers by which samples are scaled: those of one training set, for any other as well.

    >>> known = Data("known", torch.tensor([[0.0], [510.0]]), torch.tensor([0, 1]), ("a", "b"))
    >>> Scaler.of(known)(torch.tensor([[255.0], [765.0]])).tolist()
    [[0.0], [2.0]]
    """

    peak: float | None = None  # None: samples stay as they are
    mean: Tensor | None = None  # of each channel or column; None: only divided by the peak
    std: Tensor | None = None

    @classmethod
    def of(cls, data: Data, how: Scaling = "standard") -> Scaler:
        """The numbers of a training set; a channel that never varies is only centred."""
        if how == "none":
            return cls()
        if how == "unit":
            return cls(data.peak)
        x = data.x.float() / data.peak
        over = (0, 2, 3) if x.ndim == 4 else (0,)
        std = x.std(over, keepdim=True, correction=0)
        return cls(
            data.peak, x.mean(over, keepdim=True), torch.where(std > 0, std, torch.ones_like(std))
        )

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Scaler:
        """The numbers that `plain` gave."""
        if plain["how"] == "none":
            return cls()
        if plain["how"] == "unit":
            return cls(plain["peak"])
        return cls(plain["peak"], torch.tensor([plain["mean"]]), torch.tensor([plain["std"]]))

    @property
    def how(self) -> Scaling:
        """Which kind of scaling it is."""
        return "none" if self.peak is None else "unit" if self.mean is None else "standard"

    def plain(self) -> dict[str, Any]:
        """As JSON holds it: a sample x goes in as (x / peak - mean) / std, whatever the kind.

        >>> Scaler(16.0).plain()
        {'how': 'unit', 'peak': 16.0, 'mean': 0.0, 'std': 1.0}
        """
        mean, std = (None if t is None else t[0].tolist() for t in (self.mean, self.std))
        return {
            "how": self.how,
            "peak": self.peak or 1.0,
            "mean": 0.0 if mean is None else mean,
            "std": 1.0 if std is None else std,
        }

    def __call__(self, x: Tensor) -> Tensor:
        """Samples of the same shape, as floats."""
        x = x.float()
        if self.peak is not None:
            x = x / self.peak
        return x if self.mean is None or self.std is None else (x - self.mean) / self.std


@dataclass(frozen=True)
class Data:
    """A labelled set in its stored numbers: images (N, C, H, W) or features (N, D), labels (N,)."""

    name: str
    x: Tensor  # (N, C, H, W) uint8 or float32, or (N, D) float32
    y: Tensor  # (N,) long, 0..K-1
    classes: tuple[str, ...]  # K names
    x_test: Tensor | None = None  # the official test set, where there is one
    y_test: Tensor | None = None
    owner: Tensor | None = None  # (N,) long: the natural owner of each row (a writer), if known
    owner_test: Tensor | None = None
    peak: float = 255.0  # the value that means "full" in stored pixels
    owners: tuple[str, ...] = ()  # what owners 0, 1, ... are called; empty: by their numbers
    scaler: Scaler = Scaler()  # what was done to the stored numbers; at first nothing
    source: Mapping[str, Any] | None = None  # what `load` read, if that can be read again
    about: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict
    )  # of each column about owners, the value of each by its name

    def __repr__(self) -> str:
        known = count(len(self.classes), "class", "classes")
        return f"Data({self.name}: {count(len(self.y), 'sample')} of shape {self.shape}, {known})"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.x.shape[1:])

    @property
    def fingerprint(self) -> str:
        """SHA-256 of every number, so that a resumed run can tell that its data changed."""
        digest = hashlib.sha256()
        for t in (self.x, self.y, self.x_test, self.y_test, self.owner, self.owner_test):
            if t is not None:
                digest.update(f"{t.dtype}{tuple(t.shape)}".encode())
                digest.update(t.contiguous().numpy().data)
        digest.update("\0".join(self.owners).encode())  # their names address their randomness
        if self.about:
            digest.update(json.dumps(self.about, sort_keys=True).encode())
        return digest.hexdigest()

    def owner_name(self, owner: int) -> str:
        """What an owner is called."""
        return self.owners[owner] if self.owners else str(owner)


def scale(data: Data, how: Scaling = "standard") -> Data:
    """Float samples: `unit` divides by the peak; `standard` also gives each channel of the
    training set mean 0 and deviation 1 (the test set uses the training set's numbers).

    Features (N, D) are standardised per column. A channel that never varies is only centred.
    """
    scaled = Scaler.of(data, how)
    test = None if data.x_test is None else scaled(data.x_test)
    return replace(data, x=scaled(data.x), x_test=test, scaler=scaled)
