"""Images as another camera would see them: blurred, with less contrast, with noise."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import conv1d, pad

from coterie.core.rng import stream

PATTERNS = 509  # of noise; sample i has the one at i modulo this, whenever and wherever it is seen


def shifted(x: Tensor, index: Tensor, levels: Sequence[float], address: tuple[int, str]) -> Tensor:
    """Samples with so much contrast, noise and blur: as light goes, the lens before the sensor.

    The noise of a sample follows from the seed and part in `address` and its place in the data.
    """
    contrast, noise, blur = levels
    if blur:
        x = blurred(x, blur * x.shape[-1])
    if contrast != 1:
        mean = x.mean((-2, -1), keepdim=True)
        x = mean + contrast * (x - mean)
    if noise:
        seed, which = address
        drawn = torch.randn(PATTERNS, *x.shape[1:], generator=stream(seed, "noise", which))
        x = x + noise * drawn[index % PATTERNS]
    return x


def blurred(x: Tensor, deviation: float) -> Tensor:
    """Images (N, C, H, W) under a Gaussian of this deviation in pixels; borders go on as they end.

    >>> flat = torch.full((1, 1, 4, 4), 3.0)
    >>> torch.allclose(blurred(flat, 1.5), flat)
    True
    """
    reach = max(1, round(3 * deviation))
    weight = torch.exp(-0.5 * (torch.arange(-reach, reach + 1) / deviation) ** 2)
    kernel = (weight / weight.sum())[None, None]
    for _ in range(2):  # along the rows, and after a transposition along the columns
        rows = x.reshape(-1, 1, x.shape[-1])
        rows = conv1d(pad(rows, (reach, reach), mode="replicate"), kernel)
        x = rows.view(x.shape).transpose(-2, -1).contiguous()
    return x
