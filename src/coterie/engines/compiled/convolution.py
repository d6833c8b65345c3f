"""A convolution, channels last. Its weights are (out, height, width x in).

A field is what one place of the output sees: `height` rows of `width x in` numbers, each of them in
one piece also in the input. Behind a maximum only one place of four has a gradient, and `where`
says at which field it was: the way back visits those fields alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

from coterie.engines.compiled.loops import LANES, Array, Function, Value, Variable, in_vectors
from coterie.engines.compiled.step import Step

CACHE = 24_000  # bytes that are read many times in a row
SUMS = 12  # vectors of sums that stay in registers beside what they are made of


def up(n: int) -> int:
    """The next multiple of a vector's lanes."""
    return -(-n // LANES) * LANES


@dataclass(frozen=True)
class Frame:
    """The places of a sample and their channels, with a rim of zeros if a convolution wants it."""

    height: int
    width: int
    channels: int
    rim: tuple[int, int] = (0, 0)  # above and below, left and right

    @property
    def row(self) -> int:
        """Numbers from one row to the next."""
        return (self.width + 2 * self.rim[1]) * self.channels

    @property
    def size(self) -> int:
        """Numbers of a sample."""
        return (self.height + 2 * self.rim[0]) * self.row

    def at(self, y: Value | int, x: Value | int) -> Any:
        """Where the channels of a place are."""
        first = self.rim[0] * self.row + self.rim[1] * self.channels
        return y * self.row + x * self.channels + first


@dataclass(frozen=True)
class Convolution:
    """The kernels of one layer. `image` has its rim around it, and fields begin at its corner."""

    image: Frame
    out: Frame  # what leaves: the places of the convolution, or of the maximum behind it
    outputs: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    bias: bool
    window: int = 0  # the side of the maximum behind it

    @property
    def result(self) -> Frame:
        """Where the way forward puts its numbers: before a maximum, channels in whole vectors."""
        if not self.window:
            return self.out
        padded = (
            self.image.height + 2 * self.image.rim[0],
            self.image.width + 2 * self.image.rim[1],
        )
        sides = [(n - k) // s + 1 for n, k, s in zip(padded, self.kernel, self.stride, strict=True)]
        return Frame(sides[0], sides[1], up(self.outputs))

    @property
    def size(self) -> int:
        """Numbers in a field, and weights of an output."""
        return self.kernel[0] * self.length

    @property
    def length(self) -> int:
        """Numbers in a row of a field."""
        return self.kernel[1] * self.image.channels

    def field(self, y: Value | int, x: Value | int) -> Any:
        """Where the field of a place begins."""
        across = self.stride[1] * self.image.channels
        return y * (self.stride[0] * self.image.row) + x * across

    def lay(self, f: Function) -> None:
        """The weights for the way forward: (height x width x in, out), outputs side by side."""
        w, laid = f.arguments
        with f.loop(0, self.outputs) as o, f.loop(0, self.size) as k:
            laid[k * up(self.outputs) + o] = w[o * self.size + k]

    def forward(self, f: Function) -> None:
        """y[place, o] = bias[o] + sum over the field of x w, of one sample.

        A tile of places x some vectors of outputs is in registers.
        """
        x, laid, bias, y = f.arguments
        height, width = self.result.height, self.result.width

        def outputs(o: Any, lanes: list[int]) -> None:
            down, across = tile(height, width, len(lanes))
            with f.loop(0, height, down) as y0, f.loop(0, width, across) as x0:
                # The last tile is moved back to fit, and finds some numbers a second time.
                top, left = f.least(y0, height - down), f.least(x0, width - across)
                self.some_places(f, (x, laid, bias, y), (top, left), (down, across), (o, lanes))

        in_vectors(f, self.outputs, 2, outputs)

    def some_places(
        self,
        f: Function,
        arrays: tuple[Array, Array, Array, Array],
        corner: tuple[Value, Value],
        size: tuple[int, int],
        vectors: tuple[Any, list[int]],
    ) -> None:
        """One tile of the way forward."""
        x, laid, bias, y = arrays
        (top, left), (o, lanes) = corner, vectors
        places = list(product(range(size[0]), range(size[1])))
        first = [bias.vector(o + LANES * v) if self.bias else f.zero for v in range(len(lanes))]
        sums = [[Variable(f, b) for b in first] for _ in places]
        image = x.start(self.field(top, left))
        with f.loop(0, self.kernel[0]) as r:
            row, weights = (
                image.start(r * self.image.row),
                laid.start(r * (self.length * up(self.outputs)) + o),
            )
            with f.loop(0, self.length) as t:
                here = [weights.vector(t * up(self.outputs) + LANES * v) for v in range(len(lanes))]
                for place, several in zip(places, sums, strict=True):
                    number = row[t + self.field(*place)].spread()
                    for s, weight in zip(several, here, strict=True):
                        s.add_product(number, weight)
        padded = self.result.channels >= up(self.outputs)
        for (down, across), several in zip(places, sums, strict=True):
            to = y.start(self.result.at(top + down, left + across) + o)
            for v, s in enumerate(several):
                to.put(LANES * v, s.now, LANES if padded else lanes[v])

    def backward_weights(self, f: Function) -> None:
        """dw[o, place in a field] = sum over samples and fields of g[o] x, and the step.

        One output at a time, a few samples that stay in the cache: some vectors of its fields are
        in registers.
        """
        x, g, where, dw, count, *target = f.arguments
        clear(f, dw, self.outputs * self.size)
        with f.loop(0, count, self.together) as b:
            last = f.least(b + self.together, count)
            for some in self.groups():
                with f.loop(0, self.outputs) as o:
                    self.output_weights(
                        f, (x, g, where, dw.start(o * self.size)), (b, last), o, some
                    )
        step = Step.of(f, *target)
        in_vectors(
            f, self.outputs * self.size, 1, lambda i, lanes: step.apply(i, dw.vector(i), lanes[0])
        )

    def output_weights(
        self,
        f: Function,
        arrays: tuple[Array, Array, Array, Array],
        samples: tuple[Value, Value],
        o: Value,
        some: list[tuple[int, int, int]],
    ) -> None:
        """The gradient of one output's weights, some vectors of them, from some samples."""
        x, g, where, dw = arrays
        # Two sets of sums hide how long one product takes, where there are few.
        apart = 2 if 2 * len(some) <= SUMS and self.out.width % 2 == 0 else 1
        sums = [f.variables(len(some)) for _ in range(apart)]
        with f.loop(*samples) as b:
            image = x.start(b * self.image.size)
            with f.loop(0, self.out.height) as i, f.loop(0, self.out.width, apart) as j:
                for k, several in enumerate(sums):
                    number, at = self.gradient(g, where, b, i, j + k, o)
                    field = image.start(at)
                    for s, (row, t, _) in zip(several, some, strict=True):
                        s.add_product(number, field.vector(row * self.image.row + t))
        for n, (row, t, lanes) in enumerate(some):
            total = dw.vector(row * self.length + t)
            for several in sums:
                total = total + several[n].now
            dw.put(row * self.length + t, total, lanes)

    @property
    def together(self) -> int:
        """Samples that are visited again for every output: as many as fit in the cache."""
        of_one = (
            self.image.size + self.out.size + up(self.outputs) * self.out.height * self.out.width
        )
        return max(1, CACHE // (4 * of_one))

    @contextmanager
    def each_place(self, f: Function, count: Value) -> Iterator[tuple[Value, Value, Value]]:
        """Every place that leaves, sample by sample and row by row."""
        with f.loop(0, count) as b, f.loop(0, self.out.height) as i, f.loop(0, self.out.width) as j:
            yield b, i, j

    def gradient(
        self, g: Array, where: Array, b: Value, i: Value, j: Value, o: Value
    ) -> tuple[Value, Value]:
        """A gradient in every lane, and where the field that it belongs to begins."""
        number = g[b * self.out.size + self.out.at(i, j) + o].spread()
        if not self.window:
            return number, self.field(i, j)
        return number, where[self.place(b, i, j) + o].wide()

    def place(self, b: Value, i: Value, j: Value) -> Value:
        """Where `where` begins to tell of a window."""
        return ((b * self.out.height + i) * self.out.width + j) * up(self.outputs)

    def groups(self) -> list[list[tuple[int, int, int]]]:
        """The vectors of a field, (row, start in it, lanes), as many together as fit registers."""
        every = [
            (row, t, min(LANES, self.length - t))
            for row in range(self.kernel[0])
            for t in range(0, self.length, LANES)
        ]
        count = -(-len(every) // SUMS)
        size = -(-len(every) // count)
        return [every[i : i + size] for i in range(0, len(every), size)]

    def backward_inputs(self, f: Function) -> None:
        """dx[field] += g[o] w[o], over all fields and outputs.

        Behind a maximum, the outputs of a window are first listed by which of its places was
        largest, so that those of one place are summed in registers. Zeros are left out.
        """
        g, where, w, dx, listed, count = f.arguments
        clear(f, dx, self.image.size, count)
        with self.each_place(f, count) as (b, i, j):
            image = dx.start(b * self.image.size)
            here = g.start(b * self.out.size + self.out.at(i, j))
            if self.window:
                self.add_window(f, (image, here, where, w, listed), b, i, j)
            else:
                with f.loop(0, self.outputs) as o:
                    listed[o] = o
                self.add(f, image.start(self.field(i, j)), here, w, listed, f.number(self.outputs))

    def add_window(
        self, f: Function, arrays: tuple[Array, ...], b: Value, i: Value, j: Value
    ) -> None:
        """What the places of one window add."""
        image, g, where, w, listed = arrays
        corner = self.field(i * self.window, j * self.window)
        ends = self.list_outputs(f, g, where.start(self.place(b, i, j)), corner, listed)
        for n, place in enumerate(product(range(self.window), repeat=2)):
            to = image.start(corner + self.field(*place))
            self.add(f, to, g, w, listed.start(n * self.outputs), ends[n])

    def list_outputs(
        self, f: Function, g: Array, where: Array, corner: Value, listed: Array
    ) -> list[Value]:
        """For each place of a window, the outputs that were largest there; how many they are."""
        places = list(product(range(self.window), repeat=2))
        ends = [Variable(f, f.number(0)) for _ in places]
        with f.loop(0, self.outputs) as o:
            at = where[o].wide() - corner
            alive = g[o].compare("!=", 0.0, unordered=True)
            for n, (place, end) in enumerate(zip(places, ends, strict=True)):
                listed[end.now + n * self.outputs] = o  # and written over, if it was not here
                end.set(end.now + (at.compare("==", self.field(*place)) & alive).wide())
        return [end.now for end in ends]

    def add(
        self, f: Function, field: Array, g: Array, w: Array, listed: Array, many: Value
    ) -> None:
        """Add to a field the weights of the outputs listed, times their gradients."""
        with f.when(many > 0):
            for some in self.groups():
                sums = [Variable(f, field.vector(r * self.image.row + t)) for r, t, _ in some]
                with f.loop(0, many) as n:
                    o = listed[n]
                    number, weights = g[o].spread(), w.start(o * self.size)
                    for s, (row, t, _) in zip(sums, some, strict=True):
                        s.add_product(number, weights.vector(row * self.length + t))
                for s, (row, t, lanes) in zip(sums, some, strict=True):
                    field.put(row * self.image.row + t, s.now, lanes)

    def backward_bias(self, f: Function) -> None:
        """The sum of g over samples and places, and the step."""
        g, count, *target = f.arguments
        step = Step.of(f, *target)

        def outputs(o: Any, lanes: list[int]) -> None:
            total = Variable(f, f.zero)
            with self.each_place(f, count) as (b, i, j):
                at = b * self.out.size + self.out.at(i, j) + o
                total.set(total.now + g.vector(at))
            step.apply(o, total.now, lanes[0])

        in_vectors(f, self.outputs, 1, outputs)


def tile(height: int, width: int, vectors: int) -> tuple[int, int]:
    """How many places, down and across, are in registers with so many vectors of outputs each.

    Too few sums wait for each other; a tile that does not fit the places does some twice.

    >>> tile(24, 24, 1), tile(28, 28, 1), tile(10, 10, 2)
    ((1, 12), (1, 14), (1, 5))
    """

    def cost(size: tuple[int, int]) -> float:
        tiles = -(-height // size[0]) * -(-width // size[1])
        return tiles * (max(size[0] * size[1] * vectors, LANES + 1) + 1)

    room = SUMS // vectors + (2 if vectors == 1 else 0)
    every = [
        (down, across)
        for down in range(1, min(height, room) + 1)
        for across in range(1, min(width, room // down) + 1)
    ]
    return min(every, key=cost)


def clear(f: Function, a: Array, size: int, count: Value | int = 1) -> None:
    """Zeros."""
    with f.loop(0, count) as b:
        in_vectors(f, size, 1, lambda i, lanes: a.put(b * size + i, f.zero, lanes[0]))
