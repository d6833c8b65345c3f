"""A fully connected layer: y = x w + bias, with w (in, out) and samples one below the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coterie.engines.compiled.settings import LANES
from coterie.engines.compiled.step import Step

if TYPE_CHECKING:
    from coterie.engines.compiled.loops import Array, Function, Value

STREAM = 65536  # bytes of weights, above which they are read some features at a time
FEATURES = 32  # how many
TILE = 5  # samples in registers at once: of 10, 20, 50 or 100 none is computed for nothing


@dataclass(frozen=True)
class Dense:
    """The kernels of one layer."""

    inputs: int
    outputs: int
    bias: bool
    listed: bool  # samples lie where `places` says, not one below the other

    def sample(self, x: Array, places: Array, b: Value) -> Array:
        """The features of sample b."""
        return x.start(places[b] if self.listed else b * self.inputs)

    def forward(self, f: Function) -> None:
        """y[b, o] = bias[o] + sum over i of x[b, i] w[i, o].

        A tile of samples x 16 outputs is in registers. Many weights are read in one stream: some
        features of all outputs at a time, with the sums put down in between.
        """
        x, places, w, bias, y, count = f.arguments
        n, m = self.inputs, self.outputs
        some = n if 4 * n * m <= STREAM else FEATURES
        with f.loop(0, count) as b:
            self.fill(f, y.start(b * m), bias)

        def tile(i0: Any, features: int) -> None:
            with f.loop(0, count, TILE) as b:
                samples = [self.sample(x, places, b + j).start(i0) for j in range(TILE)]

                def outputs(o: Any, lanes: list[int]) -> None:
                    sums = [
                        [
                            f.variable(y.vector((b + j) * m + o + LANES * v))
                            for v in range(len(lanes))
                        ]
                        for j in range(TILE)
                    ]
                    with f.loop(0, features) as i:
                        at = (i + i0) * m + o
                        weights = [w.vector(at + LANES * v) for v in range(len(lanes))]
                        for row, sample in zip(sums, samples, strict=True):
                            number = sample[i].spread()
                            for s, weight in zip(row, weights, strict=True):
                                s.add_product(number, weight)
                    for j, row in enumerate(sums):
                        for v, s in enumerate(row):
                            y.put((b + j) * m + o + LANES * v, s.now, lanes[v])

                f.in_vectors(m, 2, outputs)

        f.in_tiles(n, some, tile)

    def fill(self, f: Function, y: Array, bias: Array) -> None:
        """Every sum begins with its bias."""

        def some(o: Any, lanes: list[int]) -> None:
            y.put(o, bias.vector(o) if self.bias else f.zero, lanes[0])

        f.in_vectors(self.outputs, 1, some)

    def backward_inputs(self, f: Function) -> None:
        """dx[b, i] = sum over o of g[b, o] w[i, o]: two samples x four features at a time."""
        g, w, dx, count = f.arguments
        n, m = self.inputs, self.outputs

        def tile(i: Any, features: int) -> None:
            with f.loop(0, count, 2) as b:
                sums = f.variables(8)

                def outputs(o: Any, lanes: list[int]) -> None:
                    whole = lanes[0] == LANES
                    here = [g.vector((b + j) * m + o) for j in range(2)]
                    here = here if whole else [v.first(lanes[0]) for v in here]
                    for k in range(features):
                        weight = w.vector((i + k) * m + o)
                        weight = weight if whole else weight.first(lanes[0])
                        for j in range(2):
                            sums[4 * j + k].add_product(weight, here[j])

                f.in_vectors(m, 1, outputs)
                both = totals(f, [s.now for s in sums])
                high = both.shuffled(both, [4, 5, 6, 7, 0, 1, 2, 3])
                for j, four in enumerate((both, high)):
                    dx.put((b + j) * n + i, four, features)

        f.in_tiles(n, 4, tile)

    def backward_weights(self, f: Function) -> None:
        """dw[i, o] = sum over b of x[b, i] g[b, o], and the step: four features x 24 outputs."""
        x, places, g, count, *target = f.arguments
        step, m = Step.of(f, *target), self.outputs

        def features(i: Any, many: int) -> None:
            def outputs(o: Any, lanes: list[int]) -> None:
                sums = [f.variables(len(lanes)) for _ in range(many)]
                with f.loop(0, count) as b:
                    sample = self.sample(x, places, b).start(i)
                    here = [g.vector(b * m + o + LANES * v) for v in range(len(lanes))]
                    for k, row in enumerate(sums):
                        number = sample[k].spread()
                        for s, gradient in zip(row, here, strict=True):
                            s.add_product(number, gradient)
                for k, row in enumerate(sums):
                    for v, s in enumerate(row):
                        step.apply((i + k) * m + o + LANES * v, s.now, lanes[v])

            f.in_vectors(m, 3, outputs)

        f.in_tiles(self.inputs, 4, features)

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


def totals(f: Function, eight: list[Value]) -> Value:
    """The sum of the lanes of each of eight vectors, as one vector."""

    def pairs(a: Value, b: Value) -> Value:
        return a.shuffled(b, [0, 2, 8, 10, 4, 6, 12, 14]) + a.shuffled(
            b, [1, 3, 9, 11, 5, 7, 13, 15]
        )

    low, high = (pairs(pairs(a, b), pairs(c, d)) for a, b, c, d in (eight[:4], eight[4:]))
    return low.shuffled(high, [0, 1, 2, 3, 8, 9, 10, 11]) + low.shuffled(
        high, [4, 5, 6, 7, 12, 13, 14, 15]
    )
