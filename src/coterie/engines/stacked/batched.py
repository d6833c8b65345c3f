"""Layers of m clients side by side, forwards and backwards, every client with its own weights.

Convolutional activations are (m, channels, height, width, B), the mini-batch innermost: a
convolution gathers its fields in long contiguous runs and is one batched product. Dense ones are
(m, B, features).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import torch
from torch import Tensor
from torch.nn import functional as F

from coterie.engines.chain import Convolution, Dense
from coterie.engines.stacked.single_client import Pooling

aten = torch.ops.aten
GATHERED = 2_000_000  # bytes of columns that are gathered at a time, to find them in the cache


def rows(flat: Tensor, place: slice, m: int, *shape: int) -> Tensor:
    """(m, *shape): one tensor of all m clients, a view."""
    return flat[m * place.start : m * place.stop].view(m, *shape)


class Product:
    """A dense layer: a matrix product for each client, all in one call."""

    def __init__(self, layer: Dense, w: Tensor, grad: Tensor, m: int) -> None:
        self.weight, self.dweight = (rows(t, layer.weight, m, *layer.shape) for t in (w, grad))
        self.bias = self.dbias = None
        if layer.bias is not None:
            self.bias, self.dbias = (rows(t, layer.bias, m, 1, layer.shape[0]) for t in (w, grad))

    def forward(self, a: Tensor) -> Tensor:
        """(m, B, in) to (m, B, out)."""
        self.entered = a
        if self.weight.shape[1] < a.shape[1]:  # the longer side last: up to twice as fast
            y = torch.bmm(self.weight, a.transpose(1, 2)).transpose(1, 2)
        else:
            y = torch.bmm(a, self.weight.transpose(1, 2))
        return y if self.bias is None else y.add_(self.bias)

    def backward(self, g: Tensor, needed: bool) -> Tensor:
        """(m, B, out) to (m, B, in)."""
        torch.bmm(g.transpose(1, 2), self.entered, out=self.dweight)
        if self.dbias is not None:
            torch.sum(g, 1, keepdim=True, out=self.dbias)
        return torch.bmm(g, self.weight) if needed else g


class Scratch:
    """Memory that is written over and over: it stays in the cache, and fresh memory does not."""

    def __init__(self) -> None:
        self.flat = torch.empty(0)

    def __call__(self, like: Tensor, *shape: int) -> Tensor:
        """A tensor of that shape, with whatever was there."""
        size = prod(shape)
        if len(self.flat) < size or self.flat.dtype != like.dtype:
            self.flat = like.new_empty(size)
        return self.flat[:size].view(shape)


class Fields:
    """A convolution: its fields gathered as columns, then one product for each client.

    Of the places that a pooling behind it compares, `tile` = (high, wide) of them, one field is
    gathered, and the kernel stands in it at as many places: fewer columns and a product of better
    shape, for some multiplications by zero. The columns are gathered again on the way back: that is
    cheaper than to keep them.

    Only a first layer may be tiled in width: its fields lie `comb` columns apart, and are long runs
    since samples are laid out with every comb-th column side by side. Activations are not.
    """

    def __init__(
        self,
        layer: Convolution,
        w: Tensor,
        grad: Tensor,
        m: int,
        tile: tuple[int, int],
        scratch: Scratch,
    ) -> None:
        self.layer, self.tile, self.scratch, self.result = layer, tile, scratch, Scratch()
        (out, c, kh, kw), (sh, sw), (high, wide) = layer.shape, layer.stride, tile
        self.weight, self.dweight = (rows(t, layer.weight, m, *layer.shape) for t in (w, grad))
        self.bias = self.dbias = None
        if layer.bias is not None:
            self.bias, self.dbias = (rows(t, layer.bias, m, out, 1) for t in (w, grad))
        self.comb = wide * sw if wide > 1 else 1
        across = -(-(kw + (wide - 1) * sw) // self.comb) * self.comb
        self.field = c, kh + (high - 1) * sh, across
        kernels = [w.new_zeros(m, out, high, wide, *self.field) for _ in range(2)]
        self.inside, dinside = map(self.diagonal, kernels)
        self.parts = [dinside[:, :, y, x] for y in range(high) for x in range(wide)]
        self.kernel, self.dkernel = (t.view(m, out * high * wide, -1) for t in kernels)

    def diagonal(self, kernel: Tensor) -> Tensor:
        """(m, out, high, wide, in, kh, kw): where the weights stand in (..., *field)."""
        (_, _, kh, kw), (sh, sw) = self.layer.shape, self.layer.stride
        by_client, by_channel, by_high, by_wide, by_depth, by_row, by_column = kernel.stride()
        steps = by_client, by_channel, by_high + sh * by_row, by_wide + sw * by_column
        size = (*kernel.shape[:5], kh, kw)
        return kernel.as_strided(size, (*steps, by_depth, by_row, by_column))

    def combed(self, x: Tensor) -> Tensor:
        """Samples (m, B, in, H, W), padded, as (m, in, H, comb, W/comb, B)."""
        ph, pw = self.layer.padding
        self.across = x.shape[-1] + 2 * pw
        rest = -self.across % self.comb
        if ph or pw or rest:
            x = F.pad(x, (pw, pw + rest, ph, ph))
        m, b, c, height, width = x.shape
        apart = x.reshape(m, b, c, height, width // self.comb, self.comb)
        return apart.permute(0, 2, 3, 5, 4, 1).contiguous()

    def padded(self, a: Tensor) -> Tensor:
        """Activations (m, in, H, W, B), padded, as (m, in, H, 1, W, B)."""
        ph, pw = self.layer.padding
        if ph or pw:
            a = F.pad(a, (0, 0, pw, pw, ph, ph))
        self.across = a.shape[3]
        return a.unsqueeze(3)

    def forward(self, a: Tensor) -> Tensor:
        """What is combed, or (m, in, H, W, B), to (m, out, *tile, places high, wide, B).

        A tile of one, or one wide, is left out of the shape.
        """
        self.entered = a = self.padded(a) if a.ndim == 5 else a
        (out, _, kh, kw), (sh, sw), (high, wide) = self.layer.shape, self.layer.stride, self.tile
        m, height, b = a.shape[0], a.shape[2], a.shape[-1]
        # Rows and columns that the pooling leaves out are not computed.
        self.high = ((height - kh) // sh + 1) // high
        self.wide = ((self.across - kw) // sw + 1) // high * high // wide
        places = self.high * self.wide * b
        self.few = max(1, GATHERED // (prod(self.field) * places * a.itemsize))
        self.inside.copy_(self.weight[:, :, None, None])
        y = self.result(a, m, out * high * wide, places)
        for kernel, entered, left in self.by_few(self.kernel, a, y):
            torch.bmm(kernel, self.columns(entered), out=left)
        if self.bias is not None:
            y.view(m, out, -1).add_(self.bias)
        tile = (n for n in self.tile if n > 1)
        return y.view(m, out, *tile, self.high, self.wide, b)

    def backward(self, g: Tensor, needed: bool) -> Tensor:
        """(m, out, *tile, high, wide, B) to (m, in, H, W, B): each field adds its gradient."""
        m, out = g.shape[:2]
        g = g.reshape(m, out * prod(self.tile), -1)
        back = torch.zeros_like(self.entered) if needed else self.entered
        several = self.by_few(self.kernel, self.dkernel, self.entered, g, back)
        for kernel, dkernel, entered, gradient, whole in several:
            columns = self.columns(entered)
            torch.bmm(gradient, columns.transpose(1, 2), out=dkernel)
            if needed:
                torch.bmm(kernel.transpose(1, 2), gradient, out=columns)
                self.scatter(columns, whole.squeeze(3))
        self.dweight.copy_(self.parts[0])
        for part in self.parts[1:]:  # one by one: a sum over such strides takes four times as long
            self.dweight.add_(part)
        if self.dbias is not None:
            torch.sum(g.view(m, out, -1), 2, keepdim=True, out=self.dbias)
        (ph, pw), (height, width) = self.layer.padding, (back.shape[2], self.across)
        return back[:, :, ph : height - ph, 0, pw : width - pw]

    def by_few(self, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """The tensors of a few clients at a time: as many as have their fields gathered at once."""
        if self.few >= len(tensors[0]):
            return iter([tensors])
        return zip(*(t.split(self.few) for t in tensors), strict=True)

    def columns(self, a: Tensor) -> Tensor:
        """(m, in x field, places x B): every field's numbers."""
        (m, *_, b), (c, high, across), (sh, sw) = a.shape, self.field, self.layer.stride
        sm, sc, sy, between, sx, _ = a.stride()
        down = self.tile[0] * sh * sy
        places, steps = [self.high, self.wide, b], [down, sw * sx, 1]
        if self.comb > 1 or sw == 1:  # places along a row lie side by side: one long run of them
            places, steps = [self.high, self.wide * b], [down, 1]
        fields = a.as_strided(
            (m, c, high, across // self.comb, self.comb, *places), (sm, sc, sy, sx, between, *steps)
        )
        return self.scratch(a, *fields.shape).copy_(fields).view(m, c * high * across, -1)

    def scatter(self, columns: Tensor, whole: Tensor) -> None:
        """Add to (m, in, H, W, B) what each field's numbers say of it."""
        (m, c, _, width, b), (_, high, kw) = whole.shape, self.field
        sh, sw = self.layer.stride
        columns = columns.view(m, c, high, kw, self.high, self.wide, b)
        # First along the width for each row of the field, then along the height: few long sums.
        across = whole.new_zeros(m, c, high, self.high, width, b)
        for x in range(kw):
            across[..., x : x + sw * self.wide : sw, :].add_(columns[:, :, :, x])
        step = self.tile[0] * sh
        for y in range(high):
            whole[:, :, y : y + step * self.high : step].add_(across[:, :, y])


class Windows(Pooling):
    """The maximum or the mean of fields side by side.

    With the mini-batch innermost, (m c, B, H, W) is a tensor with its channels last, which is the
    order in which PyTorch pools fastest. Of tiled rows, the k of a tile are the height.
    """

    def forward(self, a: Tensor) -> Tensor:
        """(m, c, H, W, B), or tiled (m, c, k, H/k, W, B), to (m, c, H/k, W/k, B)."""
        self.shape, k, (m, c, *places, b) = a.shape, self.size[0], a.shape
        high = places[1] if len(places) == 3 else places[0] // k
        out = super().forward(a.reshape(m * c, places[0], -1, b).movedim(-1, 1)).movedim(1, -1)
        self.left = out.shape
        return out.reshape(m, c, high, places[-1] // k, b)

    def backward(self, g: Tensor, needed: bool) -> Tensor:
        """From (m, c, H/k, W/k, B) to what came."""
        back = super().backward(g.reshape(self.left).movedim(-1, 1), needed)
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


class ReLU:
    """Negative numbers become zero, in place: nobody needs what was there."""

    def forward(self, a: Tensor) -> Tensor:
        """Activations of any shape to the same shape."""
        self.out = a.relu_()
        return self.out

    def backward(self, g: Tensor, needed: bool) -> Tensor:
        """Where the output is zero nothing is learnt."""
        back: Tensor = aten.threshold_backward(g, self.out, 0)
        return back


class Flat:
    """A sample's channels and places become its features, as a dense layer takes them."""

    def forward(self, a: Tensor) -> Tensor:
        """(m, c, H, W, B) to (m, B, c H W)."""
        self.shape = a.shape
        return a.flatten(1, 3).transpose(1, 2).contiguous()

    def backward(self, g: Tensor, needed: bool) -> Tensor:
        """(m, B, c H W) to (m, c, H, W, B)."""
        return g.transpose(1, 2).contiguous().view(self.shape)
