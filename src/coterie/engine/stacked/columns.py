"""Layers of m clients side by side, forwards and backwards, every client with its own weights.

Convolutional activations are (m, channels, height, width, B), the mini-batch innermost: a
convolution gathers its fields in long contiguous runs and is one batched product. Dense ones are
(m, B, features).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from coterie.engine.stacked.chain import Convolution, Dense, Pool

aten = torch.ops.aten


def rows(flat: Tensor, place: slice, m: int, *shape: int) -> Tensor:
    """(m, *shape): one tensor of all m clients, a view."""
    return flat[m * place.start : m * place.stop].view(m, *shape)


class Product:
    """A dense layer."""

    def __init__(self, layer: Dense, w: Tensor, grad: Tensor, m: int) -> None:
        self.weight, self.dweight = (rows(t, layer.weight, m, *layer.shape) for t in (w, grad))
        self.bias = self.dbias = None
        if layer.bias is not None:
            self.bias, self.dbias = (rows(t, layer.bias, m, 1, layer.shape[0]) for t in (w, grad))

    def forward(self, a: Tensor) -> Tensor:
        """(m, B, in) to (m, B, out)."""
        self.entered = a
        if self.bias is None:
            return torch.bmm(a, self.weight.transpose(1, 2))
        return torch.baddbmm(self.bias, a, self.weight.transpose(1, 2))

    def backward(self, g: Tensor, needed: bool) -> Tensor:
        """(m, B, out) to (m, B, in)."""
        torch.bmm(g.transpose(1, 2), self.entered, out=self.dweight)
        if self.dbias is not None:
            torch.sum(g, 1, keepdim=True, out=self.dbias)
        return torch.bmm(g, self.weight) if needed else g


class Fields:
    """A convolution: its fields gathered as columns, then one product for each client."""

    def __init__(self, layer: Convolution, w: Tensor, grad: Tensor, m: int) -> None:
        self.layer, out = layer, layer.shape[0]
        self.weight, self.dweight = (rows(t, layer.weight, m, out, -1) for t in (w, grad))
        self.bias = self.dbias = None
        if layer.bias is not None:
            self.bias, self.dbias = (rows(t, layer.bias, m, out, 1) for t in (w, grad))

    def forward(self, a: Tensor) -> Tensor:
        """(m, in, H, W, B) to (m, out, H', W', B)."""
        (_, _, kh, kw), (sh, sw) = self.layer.shape, self.layer.stride
        ph, pw = self.layer.padding
        if ph or pw:
            a = F.pad(a, (0, 0, pw, pw, ph, ph))
        m, c, height, width, b = self.shape = tuple(a.shape)
        high, wide = (height - kh) // sh + 1, (width - kw) // sw + 1
        sm, sc, sy, sx, _ = a.stride()
        if sw == 1:  # neighbours along a row lie side by side: one long run of W' B numbers
            fields = a.as_strided((m, c, kh, kw, high, wide * b), (sm, sc, sy, sx, sh * sy, 1))
        else:
            fields = a.as_strided(
                (m, c, kh, kw, high, wide, b), (sm, sc, sy, sx, sh * sy, sw * sx, 1)
            )
        self.columns = fields.reshape(m, c * kh * kw, high * wide * b)
        if self.bias is None:
            y = torch.bmm(self.weight, self.columns)
        else:
            y = torch.baddbmm(self.bias, self.weight, self.columns)
        return y.view(m, -1, high, wide, b)

    def backward(self, g: Tensor, needed: bool) -> Tensor:
        """(m, out, H', W', B) to (m, in, H, W, B): every field's gradient added where it was."""
        m, out, high, wide, b = g.shape
        g = g.reshape(m, out, -1)
        torch.bmm(g, self.columns.transpose(1, 2), out=self.dweight)
        if self.dbias is not None:
            torch.sum(g, 2, keepdim=True, out=self.dbias)
        if not needed:
            return g
        columns = torch.bmm(self.weight.transpose(1, 2), g)
        (_, c, kh, kw), (sh, sw) = self.layer.shape, self.layer.stride
        ph, pw = self.layer.padding
        columns = columns.view(m, c, kh, kw, high, wide, b)
        # First along the width for each row of the kernel, then along the height: kh + kw sums.
        across = g.new_zeros(m, c, kh, high, self.shape[3], b)
        for x in range(kw):
            across[..., x : x + sw * wide : sw, :].add_(columns[:, :, :, x])
        whole = g.new_zeros(self.shape)
        for y in range(kh):
            whole[:, :, y : y + sh * high : sh].add_(across[:, :, y])
        return whole[:, :, ph : self.shape[2] - ph, pw : self.shape[3] - pw]


def last(a: Tensor) -> Tensor:
    """(m, c, H, W, B) as (m c, B, H, W) with the mini-batch in the place of channels: a view."""
    return a.flatten(0, 1).movedim(-1, 1)


def inner(a: Tensor, like: Tensor) -> Tensor:
    """And back, for as many clients and channels as `like` has."""
    m, c, *_ = like.shape
    moved = a.movedim(1, -1)
    return moved.reshape(m, c, *moved.shape[1:])


class Largest:
    """The maximum of fields side by side.

    With the mini-batch innermost, (m c, B, H, W) is a tensor with its channels last, which is the
    order in which PyTorch pools fastest.
    """

    def __init__(self, layer: Pool) -> None:
        self.size = [layer.size, layer.size]

    def forward(self, a: Tensor) -> Tensor:
        """(m, c, H, W, B) to (m, c, H/k, W/k, B)."""
        self.entered = last(a)
        out, self.where = aten.max_pool2d_with_indices(self.entered, self.size, self.size)
        best: Tensor = out
        return inner(best, a)

    def backward(self, g: Tensor, needed: bool) -> Tensor:
        """The gradient goes to the place that was largest."""
        back: Tensor = aten.max_pool2d_with_indices_backward(
            last(g),
            self.entered,
            self.size,
            self.size,
            [0, 0],
            [1, 1],
            False,
            self.where,
        )
        return inner(back, g)


class Mean:
    """The mean of fields side by side."""

    def __init__(self, layer: Pool) -> None:
        self.size = [layer.size, layer.size]

    def forward(self, a: Tensor) -> Tensor:
        """(m, c, H, W, B) to (m, c, H/k, W/k, B)."""
        self.entered = last(a)
        return inner(F.avg_pool2d(self.entered, self.size), a)

    def backward(self, g: Tensor, needed: bool) -> Tensor:
        """Each place gets its share."""
        back: Tensor = aten.avg_pool2d_backward(
            last(g),
            self.entered,
            self.size,
            self.size,
            [0, 0],
            False,
            True,
            None,
        )
        return inner(back, g)


class Positive:
    """ReLU, in place: nobody needs what was there."""

    def forward(self, a: Tensor) -> Tensor:
        """Negative numbers become zero."""
        self.out = a.relu_()
        return self.out

    def backward(self, g: Tensor, needed: bool) -> Tensor:
        """Where the output is zero nothing is learnt."""
        back: Tensor = aten.threshold_backward(g, self.out, 0)
        return back


class Flat:
    """(m, c, H, W, B) to (m, B, c H W)."""

    def forward(self, a: Tensor) -> Tensor:
        """Channels and places become features."""
        self.shape = a.shape
        return a.flatten(1, 3).transpose(1, 2).contiguous()

    def backward(self, g: Tensor, needed: bool) -> Tensor:
        """And back."""
        return g.transpose(1, 2).contiguous().view(self.shape)
