"""What is compiled: the stages of a network for samples of one shape, and the memory they need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coterie.engines import chain
from coterie.engines.chain import Layer
from coterie.engines.compiled.convolution import Convolution, Frame, up
from coterie.engines.compiled.dense import Dense
from coterie.engines.compiled.host import NotCompilableError
from coterie.engines.compiled.order import Turn
from coterie.engines.compiled.pooling import Mean

Kernel = Dense | Convolution | Mean


class Buffer(NamedTuple):
    """Memory of the compiled code: numbers for each sample of a mini-batch, and numbers once."""

    kind: str  # "array": float32; "smalls": int32; "ints": int64
    each: int = 0
    once: int = 0


@dataclass(frozen=True)
class Stage:
    """One layer with its kernels, and ReLU behind it."""

    kernel: Kernel
    relu: bool = False
    weight: int = 0  # where its numbers begin in a row
    bias: int = 0
    places: tuple[slice, ...] = ()  # of its tensors in a row: weight, and bias if it has one
    tensors: tuple[int, ...] = ()  # their numbers, from the first stage on
    turn: Turn | None = None  # how the weight comes into the kernels' order, if it is another

    @property
    def leaves(self) -> int:
        """Numbers that leave it, of a sample."""
        return self.kernel.outputs if isinstance(self.kernel, Dense) else self.kernel.out.size


@dataclass(frozen=True)
class Plan:
    """A network's stages; `order` is where each number of the kernels' row is in PyTorch's."""

    sample: tuple[int, ...]
    stages: tuple[Stage, ...]
    order: NDArray[np.int64] = field(compare=False, repr=False)

    @property
    def size(self) -> int:
        """Numbers in a row."""
        return len(self.order)

    @property
    def outputs(self) -> int:
        """Classes."""
        return self.stages[-1].leaves

    @property
    def features(self) -> int:
        """Numbers that the last stage is given, of a sample; 0 if it is the only one."""
        return self.stages[-2].leaves if len(self.stages) > 1 else 0

    @property
    def inputs(self) -> int:
        """Numbers in a sample."""
        return prod(self.sample)

    @property
    def widest(self) -> int:
        """Of a network of dense layers alone, the weights of the largest; else none count."""
        sizes = [
            s.kernel.inputs * s.kernel.outputs for s in self.stages if isinstance(s.kernel, Dense)
        ]
        return max(sizes) if len(sizes) == len(self.stages) else 0

    @property
    def buffers(self) -> dict[str, Buffer]:
        """All memory beside samples and rows, by name."""
        first = self.stages[0].kernel
        found = {"places": Buffer("ints", 1), "ahead": Buffer("ints", 1)}
        if isinstance(first, Convolution):
            found["a0"] = Buffer("array", first.image.size)
        for n, stage in enumerate(self.stages, 1):
            found[f"a{n}"] = found[f"g{n}"] = Buffer("array", stage.leaves)
            conv = stage.kernel
            if isinstance(conv, Convolution):
                found[f"laid{n}"] = Buffer("array", 0, conv.size * up(conv.outputs))
                found[f"dw{n}"] = Buffer("array", 0, conv.size * conv.outputs)
                found[f"y{n}"] = Buffer("array", 0, conv.result.size if conv.window else 0)
                windows = conv.out.height * conv.out.width * up(conv.outputs)
                found[f"where{n}"] = Buffer("smalls", windows if conv.window else 0)
                found[f"fields{n}"] = Buffer("smalls", 0, conv.outputs * conv.room)
                found[f"numbers{n}"] = Buffer("array", 0, conv.outputs * conv.room)
                found[f"ends{n}"] = Buffer("ints", 0, conv.outputs)
        return found


def plan(layers: Sequence[Layer], sample: tuple[int, ...], size: int) -> Plan:
    """The stages of a chain of layers, or `NotCompilableError`."""
    if not layers or not isinstance(layers[-1], chain.Dense | chain.Rectify):
        raise NotCompilableError("it does not end with a fully connected layer")
    order = np.arange(size)
    stages = list(walk(layers, sample, order))
    if not isinstance(stages[-1].kernel, Dense):
        raise NotCompilableError("it does not end with a fully connected layer")
    return Plan(tuple(sample), tuple(stages), order)


def walk(
    layers: Sequence[Layer], sample: tuple[int, ...], order: NDArray[np.int64]
) -> Iterator[Stage]:
    """One stage after another; `order` is filled on the way."""
    frame = flat = None
    left, numbering, first = list(layers), 0, True
    if isinstance(left[0], chain.Convolution):
        frame = Frame(sample[1], sample[2], sample[0], left[0].padding)
    else:
        flat = prod(sample)
    while left:
        layer = left.pop(0)
        kernel: Any
        turn = None
        match layer:
            case chain.Flatten():
                if first or frame is None:
                    continue
                flat = frame.size
                continue
            case chain.Dense(shape=(o, i)) if flat == i:
                kernel = Dense(i, o, layer.bias is not None, first)
                turn = channels_last(layer, 1 if frame is None else frame.channels, order)
                frame, flat = None, o
            case chain.Convolution() if frame is not None:
                window = 0
                match left[:1]:
                    case [chain.Pool(mean=False, size=window)]:
                        left.pop(0)
                kernel = convolution(layer, frame, window, rim(left))
                turn = channels_last(layer, frame.channels, order)
                frame = kernel.out
            case chain.Pool(mean=True, size=k) if frame is not None and not first:
                out = Frame(frame.height // k, frame.width // k, frame.channels, rim(left))
                kernel = Mean(frame, out, k)
                frame = out
            case _:
                raise NotCompilableError(f"{type(layer).__name__} is not compiled where it stands")
        relu = bool(left) and isinstance(left[0], chain.Rectify)
        while left and isinstance(left[0], chain.Rectify):
            left.pop(0)
        yield stage(kernel, layer, relu, numbering, turn)
        numbering, first = numbering + len(slices(layer)), False


def slices(layer: Layer) -> list[slice]:
    """Where the tensors of a layer are in a row."""
    if not isinstance(layer, chain.Dense | chain.Convolution):
        return []
    return [s for s in (layer.weight, layer.bias) if s is not None]


def stage(kernel: Kernel, layer: Layer, relu: bool, numbering: int, turn: Turn | None) -> Stage:
    """A layer's kernels with the places of its numbers."""
    mine = slices(layer)
    starts = [s.start for s in mine] + [0, 0]
    tensors = tuple(range(numbering, numbering + len(mine)))
    return Stage(kernel, relu, starts[0], starts[1], tuple(mine), tensors, turn)


def rim(left: Sequence[Layer]) -> tuple[int, int]:
    """The zeros that the next layer wants around its image."""
    after = [layer for layer in left if not isinstance(layer, chain.Rectify)]
    return after[0].padding if after and isinstance(after[0], chain.Convolution) else (0, 0)


def convolution(
    layer: chain.Convolution, image: Frame, window: int, rim: tuple[int, int]
) -> Convolution:
    """The kernels of a convolution over an image."""
    outputs, inputs, *kernel = layer.shape
    if inputs != image.channels or max(layer.stride) > 2 or window not in (0, 2):
        raise NotCompilableError("of convolutions, stride 1 or 2 and maxima of 2 x 2 are compiled")
    sides = [
        (n + 2 * p - k) // s + 1
        for n, p, k, s in zip(
            (image.height, image.width), image.rim, kernel, layer.stride, strict=True
        )
    ]
    if min(sides) < max(1, window):
        raise NotCompilableError("an image is smaller than a field of its convolution")
    k = window or 1
    out = Frame(sides[0] // k, sides[1] // k, outputs, rim)
    return Convolution(
        image, out, outputs, (kernel[0], kernel[1]), layer.stride, layer.bias is not None, window
    )


def channels_last(
    layer: chain.Dense | chain.Convolution, channels: int, order: NDArray[np.int64]
) -> Turn | None:
    """Put a layer's numbers, (out, channels, places) in PyTorch, into the kernels' order."""
    outputs, places = layer.shape[0], prod(layer.shape[1:]) // channels
    mine = order[layer.weight].reshape(outputs, channels, places)
    order[layer.weight] = mine.swapaxes(1, 2).reshape(-1)
    return Turn(outputs, channels, places) if channels > 1 else None
