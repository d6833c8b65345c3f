"""Networks that are one straight line of layers: logistic regression, MLPs and small CNNs.

Layers carry the usual names (conv1, conv2, fc1, fc2, ...), so that "fc2,fc3" means the same in
every paper's setting. Convolutions are unpadded unless the network says "same" (the papers do not
state it); every one is followed by ReLU and a 2x2 maximum.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from math import prod

from torch import nn

Layers = dict[str, nn.Module]


def dense(widths: Sequence[int], dropout: float = 0.0) -> Layers:
    """Fully connected layers fc1, fc2, ... with ReLU between them; the last one is the head.

    Dropout, where asked for, follows every hidden layer.

    >>> list(dense([784, 200, 10]))
    ['fc1', 'fc1_relu', 'fc2']
    """
    layers: Layers = {}
    last = len(widths) - 1
    for i, (inputs, outputs) in enumerate(pairwise(widths), 1):
        layers[f"fc{i}"] = nn.Linear(inputs, outputs)
        if i < last:
            layers[f"fc{i}_relu"] = nn.ReLU()
            if dropout:
                layers[f"fc{i}_drop"] = nn.Dropout(dropout)
    return layers


def perceptron(
    shape: Sequence[int], classes: int, hidden: Sequence[int] = (), dropout: float = 0.0
) -> nn.Sequential:
    """A flattened sample through fully connected layers."""
    layers = dense([prod(shape), *hidden, classes], dropout)
    return nn.Sequential(OrderedDict(flat=nn.Flatten(), **layers))


def convolutional(
    shape: Sequence[int],
    classes: int,
    channels: Sequence[int],
    hidden: Sequence[int] = (),
    kernel: int = 5,
    same: bool = False,
    dropout: float = 0.0,
) -> nn.Sequential:
    """Convolutions, each with ReLU and a 2x2 maximum, then fully connected layers."""
    depth, height, width = shape
    padding = kernel // 2 if same else 0
    lost = kernel - 1 - 2 * padding
    layers: Layers = {}
    for i, (inputs, outputs) in enumerate(pairwise([depth, *channels]), 1):
        layers[f"conv{i}"] = nn.Conv2d(inputs, outputs, kernel, padding=padding)
        layers[f"conv{i}_relu"] = nn.ReLU()
        layers[f"conv{i}_pool"] = nn.MaxPool2d(2)
        height, width = (height - lost) // 2, (width - lost) // 2
    layers["flat"] = nn.Flatten()
    layers |= dense([channels[-1] * height * width, *hidden, classes], dropout)
    return nn.Sequential(OrderedDict(layers))


def mclr(shape: Sequence[int], classes: int) -> nn.Sequential:
    """Multinomial logistic regression."""
    return perceptron(shape, classes)


def dnn2(
    shape: Sequence[int], classes: int, hidden: Sequence[int] = (200,), dropout: float = 0.0
) -> nn.Sequential:
    """CFLGT's two fully connected layers; the paper does not give the width."""
    return perceptron(shape, classes, hidden, dropout)


def mlp(
    shape: Sequence[int], classes: int, hidden: Sequence[int] = (512, 256), dropout: float = 0.0
) -> nn.Sequential:
    """DA-PFL's three fully connected layers."""
    return perceptron(shape, classes, hidden, dropout)


def cnn_s(shape: Sequence[int], classes: int) -> nn.Sequential:
    """A small CNN for 8x8 digits: padded 3x3 convolutions, so that two of them fit."""
    return convolutional(shape, classes, (16, 32), kernel=3, same=True)


def cnn_m(shape: Sequence[int], classes: int) -> nn.Sequential:
    """AutoCFL's CNN for MNIST."""
    return convolutional(shape, classes, (20, 50))


def cnn_c(shape: Sequence[int], classes: int) -> nn.Sequential:
    """AutoCFL's CNN for CIFAR-10: the convolutions of LeNet-5, then the head at once."""
    return convolutional(shape, classes, (6, 16))


def cnn_f(shape: Sequence[int], classes: int) -> nn.Sequential:
    """AutoCFL's CNN for Fashion-MNIST."""
    return convolutional(shape, classes, (16, 32))


def lenet5(shape: Sequence[int], classes: int, dropout: float = 0.0) -> nn.Sequential:
    """LeNet-5 with ReLU and maxima, as CFLGT and FedClust use it."""
    return convolutional(shape, classes, (6, 16), (120, 84), dropout=dropout)


def cnn5(shape: Sequence[int], classes: int, dropout: float = 0.0) -> nn.Sequential:
    """DA-PFL's CNN for CIFAR-10."""
    return convolutional(shape, classes, (64, 64), (120, 64), dropout=dropout)


def cnn5_wide(shape: Sequence[int], classes: int, dropout: float = 0.0) -> nn.Sequential:
    """DA-PFL's CNN for CIFAR-100."""
    return convolutional(shape, classes, (64, 128), (256, 128), dropout=dropout)


def leaf_cnn(shape: Sequence[int], classes: int, dropout: float = 0.0) -> nn.Sequential:
    """The CNN of the LEAF benchmark, as FedDSMIC uses it: padded 5x5 convolutions, a wide layer."""
    return convolutional(shape, classes, (32, 64), (2048,), same=True, dropout=dropout)
