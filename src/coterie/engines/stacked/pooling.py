"""Pooling of m clients side by side, forwards and backwards, the mini-batch innermost."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from coterie.engines.stacked.chain import Pool

aten = torch.ops.aten


class Windows:
    """Fields of k x k side by side, of which a pooling makes one number each.

    With the mini-batch innermost, (m c, B, H, W) is a tensor with its channels last, which is the
    order in which PyTorch pools fastest. Of tiled rows, the k of a tile are the height.
    """

    def __init__(self, layer: Pool) -> None:
        self.size = [layer.size, layer.size]

    def seen(self, a: Tensor) -> Tensor:
        """(m, c, H, W, B), or tiled (m, c, k, H/k, W, B), as (m c, B, H, W): a view."""
        k, (m, c, *places, b) = self.size[0], a.shape
        self.shape, tiled = a.shape, len(places) == 3
        self.left = m, c, places[1] if tiled else places[0] // k, places[-1] // k, b
        return a.reshape(m * c, places[0], -1, b).movedim(-1, 1)

    def back(self, g: Tensor, like: Tensor) -> Tensor:
        """The gradient of what left, as one of `like`, which was (m c, B, H/k, W/k)."""
        n, b, height, width = like.shape
        return g.reshape(n, height, width, b).movedim(-1, 1)


class Largest(Windows):
    """The maximum of fields side by side."""

    def forward(self, a: Tensor) -> Tensor:
        """To (m, c, H/k, W/k, B)."""
        self.entered = self.seen(a)
        out, self.where = aten.max_pool2d_with_indices(self.entered, self.size, self.size)
        best: Tensor = out
        return best.movedim(1, -1).reshape(self.left)

    def backward(self, g: Tensor, needed: bool) -> Tensor:
        """The gradient goes to the place that was largest."""
        back: Tensor = aten.max_pool2d_with_indices_backward(
            self.back(g, self.where),
            self.entered,
            self.size,
            self.size,
            [0, 0],
            [1, 1],
            False,
            self.where,
        )
        return back.movedim(1, -1).reshape(self.shape)


class Larger:
    """The maximum of tiled fields of 2 x 2, pair by pair: first in a row, then of two rows.

    The order is that of PyTorch's own pooling, so that equal numbers are told apart as it does it.
    """

    def forward(self, a: Tensor) -> Tensor:
        """(m, c, 2, H/2, W, B), or (m, c, 2, 2, H/2, W/2, B), to (m, c, H/2, W/2, B)."""
        self.entered = a
        self.pairs = a.unbind(3) if a.ndim == 7 else a.unflatten(4, (-1, 2)).unbind(5)
        self.rows = torch.maximum(*self.pairs)
        return torch.maximum(*self.rows.unbind(2))

    def backward(self, g: Tensor, needed: bool) -> Tensor:
        """The gradient goes to the place that was largest."""
        two = self.rows.unbind(2)
        share(g, two, two)  # in place: nobody needs these numbers any more
        if self.entered.ndim == 7:
            share(self.rows, self.pairs, self.pairs)
            return self.entered
        # Pairs that lie in turns are better taken apart than written to.
        apart = torch.empty_like(self.rows), torch.empty_like(self.rows)
        share(self.rows, self.pairs, apart)
        return torch.stack(apart, 5).view(self.entered.shape)


def share(g: Tensor, pair: Sequence[Tensor], to: Sequence[Tensor]) -> None:
    """The gradient of a maximum of two: to the second where it is larger, else to the first."""
    torch.sub(pair[1], pair[0], out=to[1])
    aten.threshold_backward.grad_input(g, to[1], 0, grad_input=to[1])
    torch.sub(g, to[1], out=to[0])


class Mean(Windows):
    """The mean of fields side by side."""

    def forward(self, a: Tensor) -> Tensor:
        """To (m, c, H/k, W/k, B)."""
        self.entered = self.seen(a)
        self.mean = F.avg_pool2d(self.entered, self.size)
        return self.mean.movedim(1, -1).reshape(self.left)

    def backward(self, g: Tensor, needed: bool) -> Tensor:
        """Each place gets its share."""
        back: Tensor = aten.avg_pool2d_backward(
            self.back(g, self.mean), self.entered, self.size, self.size, [0, 0], False, True, None
        )
        return back.movedim(1, -1).reshape(self.shape)
