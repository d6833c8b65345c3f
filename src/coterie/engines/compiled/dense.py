"""A fully connected layer: y = x w' + bias, with w (out, in) and samples one below the other.

Vectors lie along the features: along outputs, of which a last layer has few, lanes would be idle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from coterie.engines.compiled.settings import WIDE
from coterie.engines.compiled.step import Step

if TYPE_CHECKING:
    from coterie.engines.compiled.loops import Function
    from coterie.engines.compiled.values import Array, Value

CHUNK = 1024  # features of a group of outputs that stay in the cache from sample to sample
TILE = 5  # samples in registers at once: of 10, 20, 50 or 100 none is computed for nothing
SUMS = {8: 6, 32: 25}  # of so many registers, those for sums: 3 outputs x 2 samples, or 5 x 5
GROUP = 6  # outputs whose weights are moved at once
EIGHT = 8  # vectors whose lanes are summed together


@dataclass(frozen=True)
class Dense:
    """The kernels of one layer."""

    lanes: ClassVar[int] = WIDE  # in a vector, on the way forward
    across: ClassVar[int] = WIDE  # and back

    inputs: int
    outputs: int
    bias: bool
    listed: bool  # samples lie where `places` says, not one below the other

    def sample(self, x: Array, places: Array, b: Value) -> Array:
        """The features of sample b."""
        return x.start(places[b] if self.listed else b * self.inputs)

    def group(self, most: int) -> int:
        """How many outputs are summed at once, at most so many: groups alike in size."""
        groups = -(-self.outputs // most)
        return -(-self.outputs // groups)

    def forward(self, f: Function) -> None:
        """y[b, o] = bias[o] + sum over i of x[b, i] w[o, i].

        A tile of samples x outputs is in registers, a vector of features each: its lanes are summed
        at the end, or after as many features as the cache can hold.
        """
        x, places, w, bias, y, count = f.arguments
        n, m, most = self.inputs, self.outputs, SUMS[f.registers]
        with f.loop(0, count) as b:
            self.fill(f, y.start(b * m), bias)

        def chunk(i0: Any, features: int) -> None:
            def outputs(o: Any, some: int) -> None:
                tile = min(most // some, TILE)
                weights = [w.start((o + k) * n + i0) for k in range(some)]
                with f.loop(0, count, tile) as b:
                    samples = [self.sample(x, places, b + j).start(i0) for j in range(tile)]
                    sums = [f.variables(some) for _ in samples]

                    def vector(i: Any, lanes: list[int]) -> None:
                        # Beyond the last feature nothing is read: lanes are summed, all of them.
                        here = [sample.vector(i, lanes[0]) for sample in samples]
                        for k, mine in enumerate(weights):
                            weight = mine.vector(i, lanes[0])
                            for row, numbers in zip(sums, here, strict=True):
                                row[k].add_product(numbers, weight)

                    f.in_vectors(features, 1, vector)
                    for j, row in enumerate(sums):
                        total, at = totals(f, [s.now for s in row]), (b + j) * m + o
                        y.put(at, y.vector(at, some) + total, some)

            f.in_tiles(m, self.group(min(most // 2, TILE)), outputs)

        f.in_tiles(n, CHUNK, chunk)

    def fill(self, f: Function, y: Array, bias: Array) -> None:
        """Every sum begins with its bias."""

        def some(o: Any, lanes: list[int]) -> None:
            y.put(o, bias.vector(o) if self.bias else f.zero, lanes[0])

        f.in_vectors(self.outputs, 1, some)

    def backward_inputs(self, f: Function) -> None:
        """dx[b, i] = sum over o of g[b, o] w[o, i]: five samples x some vectors of features."""
        g, w, dx, count = f.arguments
        n, m = self.inputs, self.outputs

        def features(i: Any, lanes: list[int]) -> None:
            with f.loop(0, count, TILE) as b:
                sums = [f.variables(len(lanes)) for _ in range(TILE)]
                with f.loop(0, m) as o:
                    weights = [w.vector(o * n + i + f.lanes * v) for v in range(len(lanes))]
                    for j, row in enumerate(sums):
                        number = g[(b + j) * m + o].spread()
                        for s, weight in zip(row, weights, strict=True):
                            s.add_product(number, weight)
                for j, row in enumerate(sums):
                    for v, s in enumerate(row):
                        dx.put((b + j) * n + i + f.lanes * v, s.now, lanes[v])

        f.in_vectors(n, f.at_once, features)

    def backward_weights(self, f: Function) -> None:
        """dw[o, i] = sum over b of g[b, o] x[b, i], and the step: a group x some vectors."""
        x, places, ahead, g, count, *target = f.arguments
        step, n, m = Step.of(f, *target), self.inputs, self.outputs

        def outputs(o: Any, some: int) -> None:
            def features(i: Any, lanes: list[int]) -> None:
                sums = [f.variables(len(lanes)) for _ in range(some)]
                with f.loop(0, count) as b:
                    sample = self.sample(x, places, b).start(i)
                    if self.listed:  # samples lie far apart, and the next ones elsewhere
                        for v in range(len(lanes)):
                            self.sample(x, ahead, b).fetch(i + f.lanes * v)
                    here = [sample.vector(f.lanes * v, wide) for v, wide in enumerate(lanes)]
                    for k, row in enumerate(sums):
                        number = g[b * m + o + k].spread()
                        for s, numbers in zip(row, here, strict=True):
                            s.add_product(number, numbers)
                for k, row in enumerate(sums):
                    for v, s in enumerate(row):
                        step.apply((o + k) * n + i + f.lanes * v, s.now, lanes[v])

            f.in_vectors(n, f.at_once, features)

        f.in_tiles(m, self.group(GROUP), outputs)

    def backward_bias(self, f: Function) -> None:
        """The sum of g over the samples, and the step."""
        g, count, *target = f.arguments
        step = Step.of(f, *target)

        def outputs(o: Any, lanes: list[int]) -> None:
            total = f.variable(f.zero)
            with f.loop(0, count) as b:
                total.set(total.now + g.vector(b * self.outputs + o))
            step.apply(o, total.now, lanes[0])

        f.in_vectors(self.outputs, 1, outputs)


def totals(f: Function, sums: list[Value]) -> Value:
    """The sum of the lanes of each of up to eight vectors, as one vector."""

    def half(v: Value) -> Value:
        low, high = (v.shuffled(v, range(at, at + EIGHT)) for at in (0, EIGHT))
        return low + high

    def pairs(a: Value, b: Value) -> Value:
        return a.shuffled(b, [0, 2, 8, 10, 4, 6, 12, 14]) + a.shuffled(
            b, [1, 3, 9, 11, 5, 7, 13, 15]
        )

    eight = [half(s) for s in [*sums, *[f.zero] * (EIGHT - len(sums))]]
    low, high = (pairs(pairs(a, b), pairs(c, d)) for a, b, c, d in (eight[:4], eight[4:]))
    folded = low.shuffled(high, [0, 1, 2, 3, 8, 9, 10, 11]) + low.shuffled(
        high, [4, 5, 6, 7, 12, 13, 14, 15]
    )
    return folded.shuffled(folded, [i % EIGHT for i in range(f.lanes)])
