"""How many clients are stacked, and in which way: a function of shapes alone, never of a clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from coterie.engines.stacked.chain import Convolution, Layer, Pool

# Fitted on logistic regression, MLPs, LeNet-5 and a CNN of 16-32 channels, on one core with AVX2
# and 1 MB of its own cache.
CACHE = 6_000_000  # bytes that a stack may touch in one step and still be fast
GATHERED = 8_000_000  # bytes of a client's fields, above which a client goes alone
CHANNELS = 256  # in x out of a convolution, from which PyTorch's own is as fast for one client


def convolutions(
    layers: Sequence[Layer], shape: Sequence[int]
) -> Iterator[tuple[Convolution, int]]:
    """Every convolution, and at how many places it is applied to one sample."""
    height, width = (shape[1], shape[2]) if len(shape) == 3 else (0, 0)
    for layer in layers:
        match layer:
            case Convolution(shape=(_, _, kh, kw), stride=(sh, sw), padding=(ph, pw)):
                height, width = (height + 2 * ph - kh) // sh + 1, (width + 2 * pw - kw) // sw + 1
                yield layer, height * width
            case Pool(size=k):
                height, width = height // k, width // k


def goes_alone(layers: Sequence[Layer], shape: Sequence[int], batch: int) -> bool:
    """Whether one client fills a core: then one after another, channels last.

    >>> lenet = [Convolution(slice(0), None, (6, 1, 5, 5), (1, 1), (0, 0))]
    >>> goes_alone(lenet, (1, 28, 28), batch=10), goes_alone(lenet, (1, 28, 28), batch=500)
    (False, True)
    """
    return any(
        layer.shape[0] * layer.shape[1] >= CHANNELS
        or 4 * batch * places * prod(layer.shape[1:]) > GATHERED
        for layer, places in convolutions(layers, shape)
    )


def width(layers: Sequence[Layer], shape: Sequence[int], batch: int, size: int) -> int:
    """How many clients at most stand side by side: as many as stay in a core's cache.

    >>> from coterie.engines.stacked.chain import Dense
    >>> width([Dense(slice(0), None, (10, 784))], (784,), batch=32, size=7850)
    20
    >>> width([Dense(slice(0), None, (200, 784))], (784,), batch=10, size=199_210)
    2
    """
    if goes_alone(layers, shape, batch):
        return 1
    weights = 3 * 4 * size  # numbers, gradients, momentum
    found = [layer.shape[0] * places for layer, places in convolutions(layers, shape)]
    largest = 2 * 4 * batch * max([prod(shape), *found])  # on the way there, and on the way back
    return max(1, CACHE // (weights + largest))
