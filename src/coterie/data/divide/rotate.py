"""Images turned about their centre."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample


def rotate(x: Tensor, degrees: float) -> Tensor:
    """Images (N, C, H, W), square, turned counter-clockwise.

    Multiples of 90 move pixels and change none. Other angles interpolate linearly between pixels,
    and beyond the border the border's own pixels go on, so that no new value appears.

    >>> rotate(torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), 90).flatten().tolist()
    [2.0, 4.0, 1.0, 3.0]
    """
    if degrees % 90 == 0:
        return torch.rot90(x, int(degrees // 90) % 4, (-2, -1)).contiguous()
    sin, cos = math.sin(math.radians(degrees)), math.cos(math.radians(degrees))
    theta = torch.tensor([[[cos, -sin, 0.0], [sin, cos, 0.0]]])
    grid = affine_grid(theta, [1, *x.shape[1:]], align_corners=False)
    grid = grid.expand(len(x), -1, -1, -1)
    return grid_sample(x.float(), grid, padding_mode="border", align_corners=False)
