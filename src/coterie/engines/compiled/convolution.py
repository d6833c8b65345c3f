"""A convolution, channels last. Its weights are (out, height, width x in).

A field is what one place of the output sees: `height` rows of `width x in` numbers, each of them in
one piece also in the input. Behind a maximum only one place of four has a gradient (`where` says
which field it was), and ReLU stops half of those: the way back lists what is left, and visits the
fields of that alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from coterie.engines.compiled.settings import LANES, WIDE
from coterie.engines.compiled.step import Step

if TYPE_CHECKING:
    from coterie.engines.compiled.loops import Function
    from coterie.engines.compiled.values import Array, Value

CACHE = 60_000  # bytes that are read many times in a row
HELD = 400  # numbers of a field that AVX-512 holds in registers; AVX2 has them near enough
SMALL = 48  # numbers of a field of which two sums fit the registers
WAIT = 9  # sums at least that a processor can work at while it waits for the first


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
    def lanes(self) -> int:
        """Numbers in a vector of outputs."""
        return WIDE if self.outputs > LANES else LANES

    @property
    def across(self) -> int:
        """Numbers in a vector of a field; of long ones few lanes are idle."""
        return WIDE if (self.length - 1) % WIDE >= LANES else LANES

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
            down, across = tile(height, width, f.registers // len(lanes) - 2, len(lanes))
            with f.loop(0, height, down) as y0, f.loop(0, width, across) as x0:
                # The last tile is moved back to fit, and finds some numbers a second time.
                top, left = f.least(y0, height - down), f.least(x0, width - across)
                self.some_places(f, (x, laid, bias, y), (top, left), (down, across), (o, lanes))

        f.in_vectors(self.outputs, f.at_once, outputs)

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
        first = [bias.vector(o + f.lanes * v) if self.bias else f.zero for v in range(len(lanes))]
        sums = [[f.variable(b) for b in first] for _ in places]
        image = x.start(self.field(top, left))
        with f.loop(0, self.kernel[0]) as r:
            row, weights = (
                image.start(r * self.image.row),
                laid.start(r * (self.length * up(self.outputs)) + o),
            )
            with f.loop(0, self.length) as t:
                here = [
                    weights.vector(t * up(self.outputs) + f.lanes * v) for v in range(len(lanes))
                ]
                for place, several in zip(places, sums, strict=True):
                    number = row[t + self.field(*place)].spread()
                    for s, weight in zip(several, here, strict=True):
                        s.add_product(number, weight)
        padded = self.result.channels >= up(self.outputs)
        for (down, across), several in zip(places, sums, strict=True):
            to = y.start(self.result.at(top + down, left + across) + o)
            for v, s in enumerate(several):
                to.put(f.lanes * v, s.now, up(lanes[v]) if padded else lanes[v])

    @property
    def together(self) -> int:
        """Samples on the way back at once: as many as stay in the cache from output to output."""
        places = self.out.height * self.out.width
        return max(1, CACHE // (4 * (self.image.size + 2 * self.out.size + 2 * places)))

    @property
    def room(self) -> int:
        """Gradients of one output that can be listed at once."""
        return self.together * self.out.height * self.out.width + 1

    def list_gradients(self, f: Function) -> None:
        """For each output its gradients that are not zero, and where their fields begin.

        Behind a maximum and ReLU, that is an eighth of all places. Neighbours of one sample are
        kept apart by those of the others: what is added to one field is not waited for at once.
        """
        g, where, fields, numbers, ends, count = f.arguments
        with f.loop(0, self.outputs) as o:
            at, number = fields.start(o * self.room), numbers.start(o * self.room)
            n = f.variable(f.number(0))
            places = f.loop(0, self.out.height), f.loop(0, self.out.width), f.loop(0, count)
            with places[0] as i, places[1] as j, places[2] as b:
                here = g[b * self.out.size + self.out.at(i, j) + o]
                field = self.field(i, j)
                if self.window:
                    field = where[self.place(b, i, j) + o].wide()
                at[n.now] = (b * self.image.size + field).narrow()
                number[n.now] = here  # and written over, if it is zero
                n.set(n.now + here.compare("!=", 0.0, unordered=True).wide())
            ends[o] = n.now
            with f.when(n.now > 0):  # one more, of nothing: they are visited in pairs
                at[n.now] = at[n.now - 1]
                number[n.now] = f.real(0.0)

    def place(self, b: Value, i: Value, j: Value) -> Value:
        """Where `where` begins to tell of a window."""
        return ((b * self.out.height + i) * self.out.width + j) * up(self.outputs)

    def backward_weights(self, f: Function) -> None:
        """dw[o] += g x[field], over the gradients listed: vectors of the field are in registers."""
        x, fields, numbers, ends, dw = f.arguments
        for some in self.groups(f.lanes, f.registers * 3 // 4):
            with f.loop(0, self.outputs) as o:
                at, number = fields.start(o * self.room), numbers.start(o * self.room)
                sums = [f.variables(len(some)) for _ in range(self.apart)]
                with f.loop(0, ends[o], self.apart) as n:
                    for k, several in enumerate(sums):
                        field, g = x.start(at[n + k].wide()), number[n + k].spread()
                        for s, (row, t, _) in zip(several, some, strict=True):
                            s.add_product(g, field.vector(row * self.image.row + t))
                to = dw.start(o * self.size)
                for k, (row, t, lanes) in enumerate(some):
                    total = to.vector(row * self.length + t)
                    for several in sums:
                        total = total + several[k].now
                    to.put(row * self.length + t, total, lanes)

    def backward_inputs(self, f: Function) -> None:
        """dx[field] += g w[o], over the gradients listed: vectors of weights are in registers.

        As many on every processor: where fields lie over each other, it is the order of their sum.
        """
        w, fields, numbers, ends, dx, count = f.arguments
        clear(f, dx, self.image.size, count)
        for some in self.groups(f.lanes, HELD // f.lanes):
            with f.loop(0, self.outputs) as o:
                at, number = fields.start(o * self.room), numbers.start(o * self.room)
                mine = w.start(o * self.size)
                weights = [mine.vector(row * self.length + t) for row, t, _ in some]
                with f.loop(0, ends[o]) as n:
                    field, g = dx.start(at[n].wide()), number[n].spread()
                    for weight, (row, t, lanes) in zip(weights, some, strict=True):
                        place = row * self.image.row + t
                        field.put(place, f.fma(g, weight, field.vector(place)), lanes)

    def step(self, f: Function) -> None:
        """The step of all weights; what was their gradient is zero again."""
        dw, *target = f.arguments
        step = Step.of(f, *target)

        def some(i: Any, lanes: list[int]) -> None:
            step.apply(i, dw.vector(i), lanes[0])
            dw.put(i, f.zero, lanes[0])

        f.in_vectors(self.outputs * self.size, 1, some)

    @property
    def apart(self) -> int:
        """Of a small field, sums that take turns: so that none waits for its last product."""
        return 2 if self.kernel[0] * up(self.length) <= SMALL else 1

    def groups(self, lanes: int, most: int) -> list[list[tuple[int, int, int]]]:
        """The vectors of a field, (row, start in it, lanes), at most so many together."""
        every = [
            (row, t, min(lanes, self.length - t))
            for row in range(self.kernel[0])
            for t in range(0, self.length, lanes)
        ]
        count = -(-len(every) // most)
        size = -(-len(every) // count)
        return [every[i : i + size] for i in range(0, len(every), size)]

    def backward_bias(self, f: Function) -> None:
        """The sum of g over samples and places, and the step."""
        g, count, *target = f.arguments
        step = Step.of(f, *target)

        def outputs(o: Any, lanes: list[int]) -> None:
            total = f.variable(f.zero)
            with f.loop(0, count) as b, f.loop(0, self.out.height) as i:
                row = g.start(b * self.out.size + self.out.at(i, 0) + o)
                with f.loop(0, self.out.width) as j:
                    total.set(total.now + row.vector(j * self.out.channels))
            step.apply(o, total.now, lanes[0])

        f.in_vectors(self.outputs, 1, outputs)


def tile(height: int, width: int, room: int, vectors: int = 1) -> tuple[int, int]:
    """How many places, down and across, are in registers, with so many vectors of outputs each.

    Too few sums wait for each other; a tile that does not fit the places does some twice.

    >>> tile(24, 24, 14), tile(28, 28, 14), tile(10, 10, 6, vectors=2)
    ((1, 12), (1, 14), (1, 5))
    """

    def cost(size: tuple[int, int]) -> float:
        tiles = -(-height // size[0]) * -(-width // size[1])
        return tiles * (max(size[0] * size[1] * vectors, WAIT) + 1)

    every = [
        (down, across)
        for down in range(1, min(height, room) + 1)
        for across in range(1, min(width, room // down) + 1)
    ]
    return min(every, key=cost)


def clear(f: Function, a: Array, size: int, count: Value | int = 1) -> None:
    """Zeros."""
    with f.loop(0, count) as b:
        f.in_vectors(size, 1, lambda i, lanes: a.put(b * size + i, f.zero, lanes[0]))
