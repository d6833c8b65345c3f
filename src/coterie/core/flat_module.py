"""A module on one flat tensor: an SGD step is a few operations on rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from coterie.core.errors import ConfigError

if TYPE_CHECKING:
    from coterie.core.layout import Layout


def tensors(module: nn.Module) -> dict[str, Tensor]:
    """Every parameter and buffer of a module, under each of its names (tied ones have several)."""
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def pieces(module: nn.Module) -> tuple[list[str], list[str]]:
    """The names of what goes into a row: what learns, and what is only carried along.

    Both once, in the order of registration. Raises `ConfigError` C035 where that cannot be.
    """
    unsaved = {
        f"{prefix}.{key}".removeprefix(".")
        for prefix, part in module.named_modules(remove_duplicate=False)
        for key in part._non_persistent_buffers_set
    }
    parameters = dict(module.named_parameters())
    lazy = [name for name, p in parameters.items() if is_lazy(p)]
    if lazy:
        raise unfit(
            f"{lazy[0]} has no size yet",
            why="lazy layers get theirs from the first batch they see",
            fix="run the module once on a batch before handing it over",
        )
    learning = [name for name, p in parameters.items() if p.requires_grad]
    carried: dict[str, Tensor] = {n: p for n, p in parameters.items() if not p.requires_grad}
    carried |= {n: t for n, t in module.named_buffers() if n not in unsaved}
    resting = [n for n, t in carried.items() if t.is_floating_point() or t.is_complex()]
    if not learning:
        raise unfit(
            f"{type(module).__name__} has no trainable parameter",
            why="every parameter is frozen, or there is none",
            fix="set requires_grad = True on what shall learn",
        )
    everything = tensors(module)
    types = {everything[name].dtype: name for name in (*learning, *resting)}
    if len(types) > 1 or any(dtype.is_complex for dtype in types):
        raise unfit(
            "the numbers of a model must all be of one real type",
            why=", ".join(f"{name} is {dtype}" for dtype, name in types.items()),
            fix="call .float() on the module",
        )
    return learning, resting


def unfit(what: str, *, why: str, fix: str) -> ConfigError:
    """The error of a module that cannot be one row of numbers."""
    return ConfigError(what, code="C035", where="model", why=why, fix=fix)


class Net(Protocol):
    """What a solver steps: flat numbers, flat gradients, and a way to fill them."""

    w: Tensor  # (P,) or those of several clients
    grad: Tensor  # of the first len(grad) of them
    mask: Tensor | None  # 1 where a column learns; None: everywhere
    exact: bool  # whether each step shall have the bits of PyTorch's own SGD

    def gradient(self, x: Tensor, y: Tensor) -> None:
        """Put the gradient of the loss on these samples into `grad`."""

    def clip(self, norm: float) -> None:
        """Shorten the gradient of each client to this norm, where it is longer."""


class FlatModule:
    """A module whose numbers *are* `w` and whose gradients *are* `grad`: views of flat tensors.

    `loss.backward()` adds to `grad`, `w.add_(...)` moves the module, `grad.zero_()` forgets. Leave
    the parameters' `.grad` where they are: no `zero_grad(set_to_none=True)`.
    """

    exact = True

    def __init__(self, module: nn.Module, layout: Layout) -> None:
        self.module = module
        self.w = torch.empty_like(layout.initial)  # (P,)
        self.grad = torch.zeros_like(self.w[: layout.trainable])  # (trainable,)
        self.mask: Tensor | None = None  # (trainable,) 1 where a column learns; None: everywhere
        everything = tensors(module)
        self._learning: list[tuple[Tensor, slice, Tensor]] = []
        for name, columns in layout.slices.items():
            t = everything[name]
            t.data = self.w[columns].view(t.shape)
            if columns.start < layout.trainable:
                self._learning.append((t, columns, self.grad[columns].view(t.shape)))
        beside = [t for name, t in everything.items() if name not in layout.names]
        self._beside = [(t, t.detach().clone()) for t in beside]
        self._norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
        self._moving: list[_BatchNorm] = []  # those whose statistics follow the data
        self._buffers = [
            (part, key, t)
            for part in module.modules()
            for key, t in part._buffers.items()
            if t is not None
        ]

    def reset(self, row: Tensor, mask: Tensor | None = None) -> None:
        """Forget whoever was here, and hold this row."""
        for part, key, t in self._buffers:
            if part._buffers[key] is not t:
                raise unfit(
                    f"buffer {key!r} of {type(part).__name__} was replaced by another tensor",
                    why="one client's statistics would be another's: buffers must change in place",
                    fix=f"write self.{key}.copy_(...) instead of self.{key} = ... in forward",
                )
        self.w.copy_(row)
        self.grad.zero_()
        for t, initial in self._beside:
            t.data.copy_(initial)
        for t, columns, grad in self._learning:
            t.grad = grad
            if mask is not self.mask:  # what does not learn costs no backward pass either
                t.requires_grad_(mask is None or bool(mask[columns][:1].any()))
        self.mask = mask
        self.module.train()
        if mask is not None:  # a layer that does not learn keeps its running statistics, too
            for part in self.module.modules():
                own = list(part.parameters(recurse=False))
                if own and not any(t.requires_grad for t in own):
                    part.eval()
        self._moving = [part for part in self._norms if part.training]

    def gradient(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
        """Put the gradient of the mean cross-entropy on these samples into `grad`.

        With `weights`, each sample's is multiplied by its own before the mean is taken.
        """
        said = self.forward(x)
        if weights is None:
            torch.autograd.backward(cross_entropy(said, y))
        else:
            torch.autograd.backward((cross_entropy(said, y, reduction="none") * weights).mean())

    def forward(self, x: Tensor) -> Tensor:
        """What the module says to these samples in training; the gradient is zero afterwards."""
        self.grad.zero_()
        for part in self._moving:  # one sample has no deviation: use the running one
            part.train(len(x) > 1)
        said: Tensor = self.module(x)
        return said

    def clip(self, norm: float) -> None:
        """Shorten the gradient to this norm, where it is longer, with the bits of PyTorch's own."""
        nn.utils.clip_grad_norm_([t for t, *_ in self._learning if t.requires_grad], norm)

    @contextmanager
    def drawing(self, rng: torch.Generator) -> Iterator[None]:
        """Let dropout and the like draw from an address of their own, not from the global state."""
        with torch.random.fork_rng(devices=[]):
            torch.random.manual_seed(rng.initial_seed())
            yield
