"""The maximum of 2 x 2 places behind a convolution, and their mean."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from coterie.engines.compiled.convolution import Convolution, Frame, clear

if TYPE_CHECKING:
    from coterie.engines.compiled.loops import Function


def maximum(f: Function, conv: Convolution) -> None:
    """Of one sample, the largest of each window, and `where` the field of that place begins.

    The first of equal ones; what is no number is larger than any: as PyTorch has it.
    """
    y, a, where = f.arguments
    k = conv.window
    with f.loop(0, conv.out.height) as i, f.loop(0, conv.out.width) as j:
        window, corner = y.start(conv.result.at(i * k, j * k)), conv.field(i * k, j * k)
        to, which = a.start(conv.out.at(i, j)), where.start(conv.place(f.number(0), i, j))

        def channels(o: Any, lanes: list[int]) -> None:
            best, place = window.vector(o), corner.narrow().spread()
            for down, across in list(product(range(k), repeat=2))[1:]:
                other = window.vector(conv.result.at(down, across) + o)
                larger = (other > best) | other.compare("uno", other)
                best = larger.where(other, best)
                here = (corner + conv.field(down, across)).narrow().spread()
                place = larger.where(here, place)
            to.put(o, best, lanes[0])
            which.put(o, place)

        f.in_vectors(conv.outputs, 1, channels)


@dataclass(frozen=True)
class Mean:
    """The kernels of a mean over k x k places."""

    image: Frame
    out: Frame
    window: int

    def forward(self, f: Function) -> None:
        """Of one sample, the mean of each window."""
        x, y = f.arguments
        k = self.window
        with f.loop(0, self.out.height) as i, f.loop(0, self.out.width) as j:
            window, to = x.start(self.image.at(i * k, j * k)), y.start(self.out.at(i, j))

            def channels(c: Any, lanes: list[int]) -> None:
                total = window.vector(c)
                for down, across in list(product(range(k), repeat=2))[1:]:
                    at = down * self.image.row + across * self.image.channels
                    total = total + window.vector(at + c)
                to.put(c, total * (1 / k**2), lanes[0])

            f.in_vectors(self.out.channels, 1, channels)

    def backward(self, f: Function) -> None:
        """Each place of a window gets its share; a place of none gets nothing."""
        g, dx = f.arguments
        k = self.window
        clear(f, dx, self.image.size)
        with f.loop(0, self.out.height) as i, f.loop(0, self.out.width) as j:
            window, come = dx.start(self.image.at(i * k, j * k)), g.start(self.out.at(i, j))

            def channels(c: Any, lanes: list[int]) -> None:
                share = come.vector(c) * (1 / k**2)
                for down, across in product(range(k), repeat=2):
                    at = down * self.image.row + across * self.image.channels
                    window.put(at + c, share, lanes[0])

            f.in_vectors(self.out.channels, 1, channels)
