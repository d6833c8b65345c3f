"""Layers of one client at a time, channels last: for batches and networks that fill a core.

An activation is (B, channels, height, width) in PyTorch's channels_last order, where its
convolutions and above all its pooling are fastest.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from coterie.engines.chain import Convolution, Pool

aten = torch.ops.aten


class Fields:
    """A convolution by PyTorch's own kernels."""

    def __init__(self, layer: Convolution, w: Tensor, grad: Tensor) -> None:
        self.layer = layer
        self.weight, self.dweight = (t[layer.weight].view(layer.shape) for t in (w, grad))
        self.bias, self.dbias = (None if layer.bias is None else t[layer.bias] for t in (w, grad))

    def forward(self, a: Tensor) -> Tensor:
        """(B, in, H, W) to (B, out, H', W')."""
        self.entered = a
        self.kernel = self.weight.to(memory_format=torch.channels_last)
        return F.conv2d(a, self.kernel, self.bias, self.layer.stride, self.layer.padding)

    def backward(self, g: Tensor, needed: bool) -> Tensor:
        """(B, out, H', W') to (B, in, H, W)."""
        dx, dw, db = aten.convolution_backward(
            g,
            self.entered,
            self.kernel,
            [len(self.weight)],
            self.layer.stride,
            self.layer.padding,
            [1, 1],
            False,
            [0, 0],
            1,
            [needed, True, self.dbias is not None],
        )
        self.dweight.copy_(dw)
        if self.dbias is not None:
            self.dbias.copy_(db)
        return dx if needed else g


class Pooling:
    """The maximum or the mean of fields of k x k side by side."""

    def __init__(self, layer: Pool) -> None:
        self.size, self.mean = [layer.size, layer.size], layer.mean

    def forward(self, a: Tensor) -> Tensor:
        """(B, c, H, W) to (B, c, H/k, W/k)."""
        self.entered = a
        if self.mean:
            return F.avg_pool2d(a, self.size)
        best: Tensor
        best, self.where = aten.max_pool2d_with_indices(a, self.size, self.size)
        return best

    def backward(self, g: Tensor, needed: bool) -> Tensor:
        """The gradient goes to the place that was largest; of a mean, each place gets its share."""
        back: Tensor
        if self.mean:
            back = aten.avg_pool2d_backward(
                g, self.entered, self.size, self.size, [0, 0], False, True, None
            )
        else:
            back = aten.max_pool2d_with_indices_backward(
                g, self.entered, self.size, self.size, [0, 0], [1, 1], False, self.where
            )
        return back


class Flat:
    """A sample's channels and places become its features, as a dense layer's weights lie."""

    def forward(self, a: Tensor) -> Tensor:
        """(B, c, H, W) to (1, B, c H W)."""
        self.shape = a.shape
        return a.flatten(1)[None]

    def backward(self, g: Tensor, needed: bool) -> Tensor:
        """(1, B, c H W) to (B, c, H, W)."""
        return g.view(self.shape).to(memory_format=torch.channels_last)
