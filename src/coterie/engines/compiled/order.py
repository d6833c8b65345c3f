"""From PyTorch's order of a layer's weights to that of the kernels, and back.

Weights lie (out, channels, places) there and (out, places, channels) here, in a convolution and in
a dense layer behind an image: for each output a matrix is transposed. All else stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coterie.engines.compiled.settings import LANES

if TYPE_CHECKING:
    from coterie.engines.compiled.loops import Function
    from coterie.engines.compiled.values import Array, Value


@dataclass(frozen=True)
class Turn:
    """`count` matrices, one behind the other, that are transposed."""

    count: int
    rows: int
    columns: int

    @property
    def back(self) -> Turn:
        """The other way."""
        return Turn(self.count, self.columns, self.rows)

    def write(self, f: Function, source: Array, target: Array) -> None:
        """Eight rows x eight columns at a time."""
        with f.loop(0, self.count) as n:
            first = n * (self.rows * self.columns)
            x, y = source.start(first), target.start(first)

            def columns(j: Any, wide: int) -> None:
                def rows(i: Any, high: int) -> None:
                    here = [x.vector((i + k) * self.columns + j, wide) for k in range(high)]
                    here += [f.zero] * (LANES - high)
                    for k, column in enumerate(transposed(here)[:wide]):
                        y.put((j + k) * self.rows + i, column, high)

                f.in_tiles(self.rows, LANES, rows)

            f.in_tiles(self.columns, LANES, columns)


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
