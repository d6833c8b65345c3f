"""MobileNet-v2 (Sandler et al., CVPR 2018) for small images (FedDSMIC on CIFAR-10 and CIFAR-100).

The layers, widths and therefore the parameters are the paper's. What was changed: the paper halves
a 224x224 image five times, which would leave one pixel of 32x32, so the stem and the first
inverted residual of the 24-channel stage keep their input's size (stride 1); three halvings leave
4x4. No dropout before the head. Initial weights are PyTorch's defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from coterie.models.networks import Norm

# Expansion, channels, how many, stride of the first: the paper's table 2, two strides aside.
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def convolution(
    inputs: int, outputs: int, norm: Norm, kernel: int = 1, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    """A convolution without bias and its normalisation: by batch, or in groups of 8 channels.

    Every width of the network is a multiple of 8, so the groups come out even.
    """
    return [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs) if norm == "batch" else nn.GroupNorm(outputs // 8, outputs),
    ]


class InvertedResidual(nn.Module):
    """Widen, convolve each channel by itself, narrow; added to its input where the shapes agree."""

    def __init__(self, inputs: int, outputs: int, expand: int, stride: int, norm: Norm) -> None:
        super().__init__()
        hidden = inputs * expand
        widen = [*convolution(inputs, hidden, norm), nn.ReLU6()] if expand > 1 else []
        self.layers = nn.Sequential(
            *widen,
            *convolution(hidden, hidden, norm, kernel=3, stride=stride, groups=hidden),
            nn.ReLU6(),
            *convolution(hidden, outputs, norm),
        )
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """(N, inputs, H, W) to (N, outputs, H / stride, W / stride)."""
        y = cast(Tensor, self.layers(x))
        return x + y if self.shortcut else y


def mobilenet_v2(shape: Sequence[int], classes: int, norm: Norm = "batch") -> nn.Sequential:
    """MobileNet-v2 with the strides of 32x32 images; any larger image is averaged at the end."""
    net = nn.Sequential()
    net.add_module("stem", nn.Sequential(*convolution(shape[0], 32, norm, kernel=3), nn.ReLU6()))
    width = 32
    for i, (expand, channels, repeats, stride) in enumerate(STAGES, 1):
        stage = nn.Sequential()
        for j in range(repeats):
            step = stride if j == 0 else 1
            stage.append(InvertedResidual(width, channels, expand, step, norm))
            width = channels
        net.add_module(f"stage{i}", stage)
    net.add_module("last", nn.Sequential(*convolution(width, 1280, norm), nn.ReLU6()))
    net.add_module("pool", nn.AdaptiveAvgPool2d(1))
    net.add_module("flat", nn.Flatten())
    net.add_module("fc1", nn.Linear(1280, classes))
    return net
