"""AlexNet and VGG16 for images of 32x32 pixels, without normalisation; layers conv1, ..., fc3."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from coterie.models.networks.plain import Layers, dense


def stages(
    shape: Sequence[int],
    classes: int,
    widths: Sequence[Sequence[int]],
    hidden: Sequence[int],
    dropout: float,
    stride: int = 1,
) -> nn.Sequential:
    """Stages of padded 3x3 convolutions, a 2x2 maximum behind each, then fully connected layers.

    The first convolution takes steps of `stride`.
    """
    depth, height, width = shape
    height, width = -(-height // stride), -(-width // stride)
    layers: Layers = {}
    i = 0
    for stage, outputs in enumerate(widths, 1):
        for out in outputs:
            i += 1
            layers[f"conv{i}"] = nn.Conv2d(depth, out, 3, stride if i == 1 else 1, padding=1)
            layers[f"conv{i}_relu"] = nn.ReLU()
            depth = out
        layers[f"pool{stage}"] = nn.MaxPool2d(2)
        height, width = height // 2, width // 2
    layers["flat"] = nn.Flatten()
    layers |= dense([depth * height * width, *hidden, classes], dropout)
    return nn.Sequential(OrderedDict(layers))


def alexnet(shape: Sequence[int], classes: int, dropout: float = 0.0) -> nn.Sequential:
    """AlexNet's five convolutions and three dense layers, with kernels for small images."""
    widths = (64,), (192,), (384, 256, 256)
    return stages(shape, classes, widths, (4096, 4096), dropout, stride=2)


def vgg16(shape: Sequence[int], classes: int, dropout: float = 0.0) -> nn.Sequential:
    """VGG16's thirteen convolutions, then dense layers as wide as what small images leave."""
    widths = (64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512)
    return stages(shape, classes, widths, (512, 512), dropout)
