"""A network as a straight line of layers, read from the module's own `forward`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from torch import Tensor, fx, nn
from torch.nn import functional as F

from coterie.core.errors import YOUR_CODE
from coterie.core.layout import Layout

T = TypeVar("T")

DRAWS = 4  # of weights, on which a network is compared with its layers


class NotStackableError(Exception):
    """Why a network is not a straight line of layers that can be stacked."""


def on_one_draw(check: Callable[[int], T]) -> T:
    """What a check says that some draw of weights passes.

    One that fails may have a unit right at its kink, where two right programs go two ways: of large
    networks one draw in fifty does. A network that is not its layers fails with all of them.
    """
    for draw in range(DRAWS - 1):
        with suppress(NotStackableError):
            return check(draw)
    return check(DRAWS - 1)


@dataclass(frozen=True)
class Convolution:
    """A plain two-dimensional convolution: no groups, no dilation, zeros around."""

    weight: slice  # where its numbers are in a row
    bias: slice | None
    shape: tuple[int, int, int, int]  # out, in, height and width of the kernel
    stride: tuple[int, int]
    padding: tuple[int, int]


@dataclass(frozen=True)
class Dense:
    """A fully connected layer."""

    weight: slice
    bias: slice | None
    shape: tuple[int, int]  # out, in


@dataclass(frozen=True)
class Pool:
    """The maximum or the mean of fields that do not overlap."""

    size: int
    mean: bool = False


@dataclass(frozen=True)
class Rectify:
    """ReLU."""


@dataclass(frozen=True)
class Flatten:
    """Channels and places become features."""


Layer = Convolution | Dense | Pool | Rectify | Flatten


_read: WeakKeyDictionary[Layout, list[Layer]] = WeakKeyDictionary()


def chain(layout: Layout) -> list[Layer]:
    """The layers of a network in order; `NotStackableError` says why if it has others.

    A maximum comes before a ReLU beside it: the same numbers, on a quarter of the places. They are
    read once: who chooses an engine asks, and who builds it asks again.

    >>> net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    >>> [type(layer).__name__ for layer in chain(Layout(net))]
    ['Convolution', 'Pool', 'Rectify', 'Flatten']
    """
    if layout not in _read:
        _read[layout] = read_chain(layout)
    return list(_read[layout])


def read_chain(layout: Layout) -> list[Layer]:
    """The layers, from the module's own `forward`."""
    if layout.size != layout.trainable:
        raise NotStackableError(
            "it has numbers that do not learn: running statistics, or frozen layers"
        )
    if len(layout.names) != len(layout.slices):
        raise NotStackableError("it has tied weights")
    module = layout.module(layout.initial)
    try:
        graph = fx.symbolic_trace(module.train())
    except YOUR_CODE as cause:
        raise NotStackableError(f"its forward cannot be traced: {cause}") from cause
    layers = list(walk(graph, layout))
    for i, (first, second) in enumerate(pairwise(layers)):
        if isinstance(first, Rectify) and isinstance(second, Pool) and not second.mean:
            layers[i : i + 2] = [second, first]
    weighty = [layer for layer in layers if isinstance(layer, Convolution | Dense)]
    used = [s for layer in weighty for s in (layer.weight, layer.bias) if s is not None]
    place = attrgetter("start", "stop")
    if sorted(used, key=place) != sorted(layout.slices.values(), key=place):
        raise NotStackableError("a layer is used twice, or not at all")
    return layers


def walk(graph: fx.GraphModule, layout: Layout) -> Iterator[Layer]:
    """One layer after another, each fed by the one before it alone."""
    before: fx.Node | None = None
    for node in graph.graph.nodes:
        if node.op == "output":
            if node.args[0] is not before:
                raise NotStackableError("it answers something else than its last layer")
            return
        if shape_of(node):
            continue  # x.size(0), for a view that is checked below
        if node.op == "placeholder":
            if before is not None:
                raise NotStackableError("it takes more than one input")
        elif not node.args or node.args[0] is not before:
            raise NotStackableError(f"{node.name} does not follow the layer before it alone")
        else:
            layer = read(node, graph, layout)
            if layer is not None:
                yield layer
        before = node


def shape_of(node: fx.Node) -> bool:
    """Whether a node only asks for a tensor's size."""
    asked = node.op == "call_method" and node.target == "size"
    got = node.op == "call_function" and getattr(node.target, "__name__", "") == "getattr"
    item = node.op == "call_function" and getattr(node.target, "__name__", "") == "getitem"
    return asked or (got and node.args[1] == "shape") or (item and shape_of(first(node)))


def first(node: fx.Node) -> fx.Node:
    """What a node is called on."""
    argument = node.args[0]
    if not isinstance(argument, fx.Node):
        raise NotStackableError(f"{node.name} is not called on a layer's output")
    return argument


def read(node: fx.Node, graph: fx.GraphModule, layout: Layout) -> Layer | None:
    """What one node does; None for one that does nothing."""
    if node.op == "call_module":
        return of_module(graph.get_submodule(str(node.target)), str(node.target), layout)
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    rest: tuple[Any, ...] = tuple(node.args[1:])
    if name in ("relu", "relu_"):
        return Rectify()
    if name == "flatten" and (rest or tuple(node.kwargs.values())) in ((1,), (1, -1)):
        return Flatten()
    if name in ("view", "reshape") and len(rest) == 2 and flat(rest, first(node)):
        return Flatten()
    if name in ("max_pool2d", "boolean_dispatch") and node.target is F.max_pool2d:
        size, *more = rest or (node.kwargs.get("kernel_size"),)
        stride = more[0] if more else node.kwargs.get("stride")
        others = {k: v for k, v in node.kwargs.items() if k not in ("kernel_size", "stride")}
        plain = len(more) < 2 and not any(v for k, v in others.items() if k != "dilation")
        if plain and others.get("dilation", 1) == 1:
            return pool(size, stride, mean=False)
    raise NotStackableError(f"{node.name} is not among the layers that are stacked")


def flat(shape: tuple[Any, ...], source: fx.Node) -> bool:
    """Whether a view is (x.size(0), -1)."""
    size, rest = shape
    return rest == -1 and isinstance(size, fx.Node) and shape_of(size) and source in ancestry(size)


def ancestry(node: fx.Node) -> list[fx.Node]:
    """A size's node and what it was asked of."""
    up = [a for a in node.args if isinstance(a, fx.Node)]
    return [node, *(n for a in up for n in (ancestry(a) if shape_of(a) else [a]))]


def of_module(module: nn.Module, name: str, layout: Layout) -> Layer | None:
    """What one module does; None for one that does nothing."""
    match module:
        case nn.Identity() | nn.Dropout(p=0.0) | nn.Dropout2d(p=0.0):
            return None
        case nn.ReLU():
            return Rectify()
        case nn.Flatten(start_dim=1, end_dim=-1):
            return Flatten()
        case nn.Linear():
            weight, bias = places(module, name, layout)
            return Dense(weight, bias, (module.out_features, module.in_features))
        case nn.Conv2d(groups=1, dilation=(1, 1), padding_mode="zeros"):
            weight, bias = places(module, name, layout)
            kernel, (down, across) = module.kernel_size, module.stride
            shape = (module.out_channels, module.in_channels, kernel[0], kernel[1])
            return Convolution(weight, bias, shape, (down, across), pads(module))
        case nn.MaxPool2d(padding=0, dilation=1, return_indices=False, ceil_mode=False):
            return pool(module.kernel_size, module.stride, mean=False)
        case nn.AvgPool2d(padding=0, ceil_mode=False, divisor_override=None):
            return pool(module.kernel_size, module.stride, mean=True)
    raise NotStackableError(
        f"{name} ({type(module).__name__}) is not among the layers that are stacked"
    )


def pads(module: nn.Conv2d) -> tuple[int, int]:
    """Zeros above and left, as many as below and right."""
    kernel, padding = module.kernel_size, module.padding
    if padding == "valid":
        return 0, 0
    if padding == "same":
        if any(k % 2 == 0 for k in kernel):
            raise NotStackableError("an even kernel is padded unevenly")
        return kernel[0] // 2, kernel[1] // 2
    return int(padding[0]), int(padding[1])


def places(module: nn.Module, name: str, layout: Layout) -> tuple[slice, slice | None]:
    """Where the numbers of a layer are in a row."""
    bias = layout.names[f"{name}.bias"] if isinstance(module.bias, Tensor) else None
    return layout.names[f"{name}.weight"], bias


def pool(size: Any, stride: Any, *, mean: bool) -> Pool:
    """Square fields, side by side."""
    square = size if isinstance(size, int) else size[0] if len(set(size)) == 1 else 0
    step = size if stride is None or stride == [] else stride
    if square < 2 or step not in (square, (square, square)):
        raise NotStackableError("its pooling overlaps, or is not square")
    return Pool(square, mean)
