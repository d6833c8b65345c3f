"""From PyTorch's order of a layer's weights to that of the kernels, and back.

Dense weights lie (in, out) here, behind an image (places x channels, out), and those of a
convolution (out, places, channels): each is a matrix, or several, that is transposed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coterie.engines.compiled.settings import LANES

if TYPE_CHECKING:
    from coterie.engines.compiled.loops import Array, Function, Value


@dataclass(frozen=True)
class Turn:
    """`count` matrices that are transposed, each with how far it is to the next row or matrix."""

    count: int
    rows: int
    columns: int
    apart: tuple[int, int]  # from one matrix to the next: in PyTorch's order, in the kernels'
    row: tuple[int, int]  # from one row to the next, in each

    @property
    def back(self) -> Turn:
        """The other way."""
        return Turn(self.count, self.columns, self.rows, self.apart[::-1], self.row[::-1])

    def write(self, f: Function, source: Array, target: Array) -> None:
        """Eight rows x eight columns at a time."""
        with f.loop(0, self.count) as n:
            x, y = source.start(n * self.apart[0]), target.start(n * self.apart[1])

            def columns(j: Any, wide: int) -> None:
                def rows(i: Any, high: int) -> None:
                    here = [x.vector((i + k) * self.row[0] + j, wide) for k in range(high)]
                    here += [f.zero] * (LANES - high)
                    for k, column in enumerate(transposed(here)[:wide]):
                        y.put((j + k) * self.row[1] + i, column, high)

                f.in_tiles(self.rows, LANES, rows)

            f.in_tiles(self.columns, LANES, columns)


def dense(inputs: int, outputs: int) -> Turn:
    """(out, in) to (in, out)."""
    return Turn(1, outputs, inputs, (0, 0), (inputs, outputs))


def dense_behind_image(channels: int, places: int, outputs: int) -> Turn:
    """(out, channels, places) to (places, channels, out): a matrix for each channel."""
    return Turn(
        channels, outputs, places, (places, outputs), (channels * places, channels * outputs)
    )


def convolution(channels: int, places: int, outputs: int) -> Turn:
    """(out, channels, places) to (out, places, channels): a matrix for each output."""
    size = channels * places
    return Turn(outputs, channels, places, (size, size), (places, channels))


def transposed(rows: list[Value]) -> list[Value]:
    """Eight vectors as a matrix: blocks of 1, 2 and 4 lanes change places."""
    for d in (1, 2, 4):
        for i in (i for i in range(LANES) if not i & d):
            a, b = rows[i], rows[i + d]
            rows[i] = a.shuffled(b, [LANES + k - d if k & d else k for k in range(LANES)])
            rows[i + d] = a.shuffled(b, [LANES + k if k & d else k + d for k in range(LANES)])
    return rows


def copy(f: Function, source: Array, target: Array, size: int) -> None:
    """What has one order only."""

    def some(i: Any, lanes: list[int]) -> None:
        target.put(i, source.vector(i, lanes[0]), lanes[0])

    f.in_vectors(size, 1, some)
