"""A straight line of PyTorch's own layers as plain data, and back: no code is needed."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

Layer = Sequence[Any]  # its name, its class in torch.nn, the arguments it is made with
PLAIN = (bool, int, float, str, type(None))


def straight_line(module: nn.Module) -> tuple[Layer, ...] | None:
    """The layers of an `nn.Sequential`, if PyTorch's own classes and plain arguments make them.

    >>> straight_line(nn.Sequential(nn.Flatten(), nn.Linear(3, 2, bias=False)))[1]
    ('1', 'Linear', {'in_features': 3, 'out_features': 2, 'bias': False})
    """
    if type(module) is not nn.Sequential or hooked(module):
        return None
    layers = [(name, *described(part)) for name, part in module.named_children()]
    line = tuple((name, kind, options) for name, kind, options in layers if kind)
    if len(line) < len(layers) or not line:
        return None
    try:
        with torch.device("meta"):  # nothing is drawn or held
            again = rebuilt(line)
    except (TypeError, ValueError, RuntimeError):
        return None
    return line if forms(again) == forms(module) and str(again) == str(module) else None


def described(layer: nn.Module) -> tuple[str, dict[str, Any]]:
    """The class of a layer and the arguments it is made with; "" if that cannot be told."""
    kind = type(layer)
    if getattr(nn, kind.__name__, None) is not kind or hooked(layer) or any(layer.children()):
        return "", {}
    options = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        anything = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if anything or name in ("device", "dtype"):
            continue
        value = getattr(layer, name, parameter.empty)
        if name == "bias" and not isinstance(value, bool):
            value = value is not None and value is not parameter.empty
        value = list(value) if isinstance(value, tuple) else value
        if not all(isinstance(v, PLAIN) for v in (value if isinstance(value, list) else [value])):
            return "", {}
        if value != parameter.default:
            options[name] = value
    return kind.__name__, options


def rebuilt(line: Sequence[Layer]) -> nn.Sequential:
    """The network of these layers. Their classes are PyTorch's own: a file can name no other."""
    layers = OrderedDict[str, nn.Module]()
    for name, kind, options in line:
        cls = getattr(nn, kind, None)
        if not (isinstance(cls, type) and issubclass(cls, nn.Module)):
            raise ValueError(f"torch.nn has no layer {kind!r}")
        layers[name] = cls(**options)
    return nn.Sequential(layers)


def hooked(module: nn.Module) -> bool:
    """Whether something was hung on a module that its class and arguments do not tell."""
    return bool(module._forward_hooks or module._forward_pre_hooks)


def forms(module: nn.Module) -> dict[str, torch.Size]:
    """The shape of every number that is saved."""
    return {name: t.shape for name, t in module.state_dict().items()}
