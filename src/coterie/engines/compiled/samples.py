"""Where samples come from: the mini-batch is gathered channels last, or read where it lies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coterie.engines.compiled.convolution import Convolution, Frame
from coterie.engines.compiled.dense import TILE
from coterie.engines.compiled.loops import Array, Function, in_vectors
from coterie.engines.compiled.plan import Plan


def gather(plan: Plan) -> Callable[[Function], None]:
    """The kernel that gets a mini-batch ready for the first layer of a plan."""
    first = plan.stages[0].kernel

    def write(f: Function) -> None:
        x, order, a, places, count = f.arguments
        if isinstance(first, Convolution):
            with f.loop(0, count) as b:
                copy_image(
                    f, x.start(order[b] * plan.inputs), a.start(b * first.image.size), first.image
                )
            return
        with f.loop(0, count) as b:
            places[b] = order[b] * plan.inputs
        with f.loop(count, count + TILE) as b:  # a whole tile: read, and never used
            places[b] = places[0]

    return write


def copy_image(f: Function, x: Array, a: Array, image: Frame) -> None:
    """One sample (channels, height, width) into the middle of its frame, channels last."""
    if image.channels > 1:
        with f.loop(0, image.height) as i, f.loop(0, image.channels) as c:
            row, to = x.start((c * image.height + i) * image.width), a.start(image.at(i, 0) + c)
            with f.loop(0, image.width) as j:
                to[j * image.channels] = row[j]
        return
    runs, length = (image.height, image.width) if any(image.rim) else (1, image.size)
    with f.loop(0, runs) as i:
        row, to = x.start(i * image.width), a.start(image.at(i, 0))

        def some(j: Any, lanes: list[int]) -> None:
            to.put(j, row.vector(j, lanes[0]), lanes[0])

        in_vectors(f, length, 1, some)


def copy(f: Function, size: int) -> None:
    """a into b."""
    a, b = f.arguments
    in_vectors(f, size, 1, lambda i, lanes: b.put(i, a.vector(i), lanes[0]))
