"""ReLU, and the loss: softmax and cross-entropy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from coterie.engines.compiled.loops import Function
from coterie.engines.compiled.settings import LANES
from coterie.engines.compiled.values import SMALL, Array, Value

LOWEST = -87.0  # below this the exponential is nothing beside the 1 of the largest class
LOG2E, LN2_HIGH, LN2_LOW = 1.44269504, 0.693359375, -2.12194440e-4  # ln 2 in two parts
ROUND = 12582912.0  # 1.5 * 2**23: what is added to it loses its fraction
TAYLOR = (1.9875691e-4, 1.3981999e-3, 8.3334519e-3, 4.1665796e-2, 1.6666665e-1, 0.5)  # Cephes


def relu(f: Function, size: int) -> None:
    """Zero where a number is not positive; what is no number stays so."""
    a, count = f.arguments

    def some(i: Any, lanes: list[int]) -> None:
        v = a.vector(i).held()
        a.put(i, v.compare(">", 0.0, unordered=True).where(v, f.zero), lanes[0])

    samples(f, count, size, some)


def relu_backward(f: Function, size: int) -> None:
    """The gradient stops where ReLU gave zero."""
    a, g, count = f.arguments

    def some(i: Any, lanes: list[int]) -> None:
        passes = a.vector(i).compare(">", 0.0, unordered=True)
        g.put(i, passes.where(g.vector(i).held(), f.zero), lanes[0])

    samples(f, count, size, some)


def samples(f: Function, count: Value, size: int, body: Callable[[Any, list[int]], None]) -> None:
    """All numbers of so many samples of a size, a vector at a time."""
    with f.loop(0, count) as b:
        f.in_vectors(size, 1, lambda i, lanes: body(b * size + i, lanes))


def loss_backward(f: Function, classes: int) -> None:
    """The gradient of the mean cross-entropy: (softmax - one-hot) / B."""
    y, g, labels, order, count = f.arguments
    share = 1.0 / count.real()
    with f.loop(0, count) as b:
        row, to = y.start(b * classes), g.start(b * classes)
        high = horizontal(f, largest(f, row, classes), lambda a, b: (a > b).where(a, b))
        total = f.variables(1)[0]

        def exponentials(k: Any, lanes: list[int]) -> None:
            e = exp(f, row.vector(k) - high)
            to.put(k, e, lanes[0])
            total.set(total.now + (e if lanes[0] == LANES else e.first(lanes[0])))

        f.in_vectors(classes, 1, exponentials)
        scale = share.spread() / horizontal(f, total.now, lambda a, b: a + b)

        def scaled(k: Any, lanes: list[int]) -> None:
            to.put(k, to.vector(k) * scale, lanes[0])

        f.in_vectors(classes, 1, scaled)
        label = labels[order[b]]
        to[label] = to[label] - share


def largest(f: Function, row: Array, classes: int) -> Value:
    """Lane by lane the largest of a row's vectors; a short one counts with its own lanes."""
    best = row.vector(0, min(classes, LANES)) if classes >= LANES else only(f, row, 0, classes)
    for k in range(LANES, classes, LANES):
        lanes = min(LANES, classes - k)
        v = row.vector(k) if lanes == LANES else only(f, row, k, lanes)
        best = (v > best).where(v, best)
    return best


def only(f: Function, row: Array, at: int, lanes: int) -> Value:
    """Some lanes, the first of them again in all others."""
    v = row.vector(at)
    return v.shuffled(v, [i if i < lanes else 0 for i in range(LANES)])


def horizontal(f: Function, v: Value, combine: Any) -> Value:
    """All lanes combined, in every lane."""
    for apart in (4, 2, 1):
        v = combine(v, v.shuffled(v, [i ^ apart for i in range(LANES)]))
    return v


def exp(f: Function, x: Value) -> Value:
    """e**x for x <= 0, to the last bit or two: 2**n times a polynomial, the same everywhere."""
    x = (x < LOWEST).where(f.all(LOWEST), x)
    shifted = x * LOG2E + ROUND
    n = shifted - ROUND
    r = x - n * LN2_HIGH - n * LN2_LOW
    series = f.all(TAYLOR[0])
    for c in TAYLOR[1:]:
        series = f.fma(series, r, f.all(c))
    series = f.fma(series, r * r, r + 1.0)
    whole = shifted.as_kind(ir.VectorType(SMALL, f.lanes)) + (127 - 0x4B400000)
    power = whole.shifted_left(23).as_kind(x.raw.type)
    return series * power
