"""Where samples come from: the mini-batch is gathered channels last, or read where it lies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coterie.engines.compiled.convolution import Convolution, Frame
from coterie.engines.compiled.dense import TILE
from coterie.engines.compiled.loops import Function
from coterie.engines.compiled.plan import Plan
from coterie.engines.compiled.settings import LANES
from coterie.engines.compiled.values import Array


def gather(plan: Plan) -> Callable[[Function], None]:
    """The kernel that gets a mini-batch ready for the first layer of a plan."""
    first = plan.stages[0].kernel

    def write(f: Function) -> None:
        x, order, a, places, ahead, count, then = f.arguments
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
        known = f.least(then, count)
        with f.loop(0, known) as b:
            ahead[b] = order[count + b] * plan.inputs
        with f.loop(known, count) as b:  # there are none, or as few: what is here already
            ahead[b] = places[b]

    return write


def rows(f: Function, size: int) -> None:
    """Some rows of x, one after another, into a."""
    x, order, a, count = f.arguments
    with f.loop(0, count) as b:
        row, to = x.start(order[b] * size), a.start(b * size)

        def some(j: Any, lanes: list[int]) -> None:
            to.put(j, row.vector(j, lanes[0]), lanes[0])

        f.in_vectors(size, 1, some)


def copy_image(f: Function, x: Array, a: Array, image: Frame) -> None:
    """One sample (channels, height, width) into the middle of its frame, channels last."""
    if image.channels > 1:
        with f.loop(0, image.height) as i:
            planes = [x.start((c * image.height + i) * image.width) for c in range(image.channels)]
            interleave(f, planes, a.start(image.at(i, 0)), image.width)
        return
    runs, length = (image.height, image.width) if any(image.rim) else (1, image.size)
    with f.loop(0, runs) as i:
        row, to = x.start(i * image.width), a.start(image.at(i, 0))

        def some(j: Any, lanes: list[int]) -> None:
            to.put(j, row.vector(j, lanes[0]), lanes[0])

        f.in_vectors(length, 1, some)


def interleave(f: Function, planes: list[Array], to: Array, width: int) -> None:
    """A row of each channel, put together place by place."""
    channels = len(planes)
    whole = width - width % LANES if channels <= 4 else 0
    with f.loop(0, whole, LANES) as j:
        here = [plane.vector(j) for plane in planes]
        for k in range(channels):  # lane by lane: which channel, and of which place
            source = [divmod(LANES * k + lane, channels) for lane in range(LANES)]
            mixed = here[0].shuffled(here[0], [place for place, _ in source])
            for c in range(1, channels):
                lanes = [
                    LANES + place if which == c else lane
                    for lane, (place, which) in enumerate(source)
                ]
                mixed = mixed.shuffled(here[c], lanes)
            to.put((j * channels) + LANES * k, mixed)
    for c, plane in enumerate(planes):
        with f.loop(whole, width) as j:
            to[j * channels + c] = plane[j]


def copy(f: Function, size: int) -> None:
    """a into b."""
    a, b = f.arguments
    f.in_vectors(size, 1, lambda i, lanes: b.put(i, a.vector(i), lanes[0]))
