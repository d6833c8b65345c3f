"""The network of a run: built for the shape of its samples, and laid out as one flat row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from coterie.core import rng
from coterie.core.layout import Layout
from coterie.models import factory

Model = str | nn.Module | Callable[..., nn.Module]  # a name of the zoo, a module, or its factory


def build_layout(
    model: Model,
    shape: Sequence[int],
    classes: int,
    *,
    seed: int = 0,
    head: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Layout:
    """The network for samples of this shape as a row of parameters.

    Its initial weights follow from `seed`, the seed of the whole run; `head` names the layer that
    is the head, and `options` go to the network's builder.

    >>> build_layout("mclr", (1, 8, 8), 10).size
    650
    """
    net = factory.build(
        model, shape=shape, classes=classes, seed=rng.address(seed, "model"), **(options or {})
    )
    return Layout(net, head=head)
