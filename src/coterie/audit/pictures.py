"""Samples as people see them, and how alike two of them are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

MOST = 200.0  # dB of two pictures that are the same to the last bit


@dataclass(frozen=True)
class Frame:
    """How the numbers of samples become pixels, and between what these lie: known to everybody."""

    mean: Tensor  # of a sample's shape, or broadcast to it
    std: Tensor
    low: float
    high: float
    typical: Tensor  # the mean picture of others' samples: what whoever saw nothing would guess

    @classmethod
    def of(cls, scaling: Mapping[str, Any], others: Tensor) -> Frame:
        """From how the samples were scaled, and from samples of others (N, ...)."""
        mean, std = (torch.as_tensor(scaling[key], dtype=torch.float32) for key in ("mean", "std"))
        u = others * std + mean
        return cls(mean, std, float(u.min()), float(u.max()), u.mean(0))

    def raw(self, x: Tensor) -> Tensor:
        """Samples as pixels, wherever these lie."""
        return x * self.std + self.mean

    def pixels(self, x: Tensor) -> Tensor:
        """Samples as they are drawn, within the range."""
        return self.raw(x).clamp(self.low, self.high)

    def scaled(self, u: Tensor) -> Tensor:
        """Pixels as a network takes them."""
        return (u - self.mean) / self.std


def psnr(a: Tensor, b: Tensor, peak: float = 1.0) -> float:
    """The peak signal-to-noise ratio of two pictures in decibels: 20 and more is a likeness.

    >>> psnr(torch.zeros(4), torch.full((4,), 0.1))
    20.0
    """
    error = float((a.double() - b.double()).square().mean()) / peak**2
    return round(MOST if error <= 0 else min(MOST, -10 * float(torch.tensor(error).log10())), 2)


def ssim(a: Tensor, b: Tensor, peak: float = 1.0) -> float:
    """The structural similarity of two images (C, H, W): 1 if they are the same.

    Wang et al. 2004, in plain windows of 7 pixels or of the whole image; NaN for what is no image.

    >>> ssim(torch.rand(1, 8, 8), torch.zeros(1, 8, 8)) < 0.1
    True
    """
    if a.ndim != 3:
        return float("nan")
    a, b = a.double()[None] / peak, b.double()[None] / peak
    side = min(7, *a.shape[2:])

    def mean(t: Tensor) -> Tensor:
        return avg_pool2d(t, side, 1)

    ma, mb = mean(a), mean(b)
    va, vb = mean(a * a) - ma * ma, mean(b * b) - mb * mb
    both = mean(a * b) - ma * mb
    c1, c2 = 0.01**2, 0.03**2
    found = (2 * ma * mb + c1) * (2 * both + c2) / ((ma**2 + mb**2 + c1) * (va + vb + c2))
    return round(float(found.mean()), 4)


def closest(guesses: Tensor, originals: Tensor) -> tuple[int, int]:
    """Which of some guesses (m, ...) is nearest to which of some originals (n, ...)."""
    d = torch.cdist(guesses.flatten(1).double(), originals.flatten(1).double())
    i, j = divmod(int(d.argmin()), d.shape[1])
    return i, j
