"""ResNet-9: eight convolutions, two residual blocks and a head (FedClust on CIFAR-100)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from coterie.models.networks import Norm


def block(inputs: int, outputs: int, norm: Norm, pool: bool = False) -> nn.Sequential:
    """A 3x3 convolution with bias, normalisation (32 groups, or the batch), ReLU, and a maximum."""
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.GroupNorm(32, outputs) if norm == "group" else nn.BatchNorm2d(outputs),
        nn.ReLU(),
    ]
    return nn.Sequential(*layers, *([nn.MaxPool2d(2)] if pool else []))


class Residual(nn.Module):
    """Two blocks whose output is added to their input."""

    def __init__(self, channels: int, norm: Norm) -> None:
        super().__init__()
        self.block1 = block(channels, channels, norm)
        self.block2 = block(channels, channels, norm)

    def forward(self, x: Tensor) -> Tensor:
        """x + block2(block1(x)), (N, C, H, W) as it came."""
        return x + cast(Tensor, self.block2(self.block1(x)))


def resnet9(shape: Sequence[int], classes: int, norm: Norm = "group") -> nn.Sequential:
    """ResNet-9; the last maximum takes all that is left of the image (4x4 of 32x32)."""
    depth, height, width = shape
    net = nn.Sequential()
    net.add_module("conv1", block(depth, 64, norm))
    net.add_module("conv2", block(64, 128, norm, pool=True))
    net.add_module("res1", Residual(128, norm))
    net.add_module("conv3", block(128, 256, norm, pool=True))
    net.add_module("conv4", block(256, 512, norm, pool=True))
    net.add_module("res2", Residual(512, norm))
    net.add_module("pool", nn.MaxPool2d((height // 8, width // 8)))
    net.add_module("flat", nn.Flatten())
    net.add_module("fc1", nn.Linear(512, classes))
    return net
