"""How one model becomes one row of numbers, and back; named columns: body, head, buffers."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from coterie.core.answers import Form
from coterie.core.errors import ConfigError
from coterie.core.flat_module import FlatModule, pieces, tensors
from coterie.core.suggest import similar

Columns = slice | Tensor  # a slice where the columns lie side by side, so that indexing is a view
WORDS = ("all", "params", "buffers", "head", "head.weight", "head.bias", "body", "norm", "none")


class Layout:
    """How one model is a row of P numbers, and back.

    The row holds the trainable parameters in the order of `named_parameters`, then frozen
    parameters and floating buffers (running statistics of batch normalisation); tied parameters are
    there once. Integer buffers (`num_batches_tracked`) and buffers that are not saved with the
    module are left out, for a mean of counters is no counter: every `flat` starts them anew.

    The head is the last `nn.Linear` registered, or whatever `head` names. The module is copied. One
    layout serves one thread.

    >>> layout = Layout(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    >>> layout.size, layout.head_name, layout.columns("head"), layout.columns("body")
    (26, '2', slice(16, 26, None), slice(0, 16, None))
    """

    def __init__(
        self,
        module: nn.Module,
        head: str | None = None,
        built: Mapping[str, Any] | None = None,
    ) -> None:
        self.built = dict(built or {"head": head})  # how the module can be made again
        self._template = copy.deepcopy(module).eval()
        learning, resting = pieces(self._template)
        everything = tensors(self._template)
        ends = list(accumulate(everything[name].numel() for name in (*learning, *resting)))
        self.size = ends[-1]  # P
        self.trainable = ends[len(learning) - 1]  # the columns that can learn come first
        # Each tensor of the row by its first name, and by all of them: tied ones have several.
        self.slices = {
            name: slice(start, stop)
            for name, start, stop in zip((*learning, *resting), (0, *ends), ends, strict=False)
        }
        first = {id(everything[name]): name for name in self.slices}
        self.names = {n: self.slices[first[id(t)]] for n, t in everything.items() if id(t) in first}
        self.initial = self.row(self._template)
        self.dtype = self.initial.dtype
        self.head_name = last_linear(self._template) if head is None else head
        self._columns: dict[str, Columns] = {}
        self._masks: dict[str, Tensor | None] = {}
        self._mounted: FlatModule | None = None
        self._reader: FlatModule | None = None
        layers = dict(self._template.named_modules(remove_duplicate=False))
        if head is not None and (head not in layers or not self._below(head)):
            raise self._unknown(head)

    def __repr__(self) -> str:
        return f"Layout({self.size} columns, {self.trainable} trainable, head {self.head_name!r})"

    def __getstate__(self) -> dict[str, Any]:
        # Working modules are made again where they are used.
        return {**self.__dict__, "_mounted": None, "_reader": None}

    @cached_property
    def has_batch_norm(self) -> bool:
        """Whether the network needs two samples to train on."""
        return any(isinstance(part, _BatchNorm) for part in self._template.modules())

    @cached_property
    def _normalisation(self) -> list[slice]:
        """Where the tensors of normalisation layers are; a network may have none."""
        kinds = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
        named = self._template.named_modules()
        return [s for name, part in named if isinstance(part, kinds) for s in self._below(name)]

    # -- names ------------------------------------------------------------------------------------

    def columns(self, names: str) -> Columns:
        """The columns of these names in increasing order: a slice if they lie side by side.

        `names` is one or several, with commas, of: all, params (trainable), buffers (the rest),
        head, head.weight, head.bias, body (trainable but not head), norm (layers that normalise,
        with their statistics), none, and the names of layers and parameters ("conv1", "fc2,fc3"). A
        word of this list comes before a layer so named.
        A ~ before all of this means all other columns: "~fc2,fc3" is all but these two layers.
        """
        if names not in self._columns:
            found = self._chosen(names).nonzero().flatten()
            start, stop = (int(found[0]), int(found[-1]) + 1) if len(found) else (0, 0)
            self._columns[names] = slice(start, stop) if stop - start == len(found) else found
        return self._columns[names]

    def form(self, names: str = "all") -> Form:
        """The type and the shape of a row of these columns, as a task declares its answer.

        >>> str(Layout(nn.Linear(3, 2)).form("weight"))
        '(6,) float32'
        """
        columns, kind = self.columns(names), str(self.initial.dtype).removeprefix("torch.")
        size = columns.stop - columns.start if isinstance(columns, slice) else len(columns)
        return Form(kind, (size,))

    def _chosen(self, names: str) -> Tensor:
        """(P,) bool: the columns of these names."""
        name, *more = names.strip().split(",", 1)
        if name.startswith("~"):
            return ~self._chosen(names.strip()[1:])
        if more:
            return self._chosen(name) | self._chosen(more[0])
        chosen = torch.zeros(self.size, dtype=torch.bool)
        match name:
            case "all":
                places = [slice(0, self.size)]
            case "params":
                places = [slice(0, self.trainable)]
            case "buffers":
                places = [slice(self.trainable, self.size)]
            case "none":
                return chosen
            case "norm":
                for place in self._normalisation:
                    chosen[place] = True
                return chosen
            case "body":
                chosen[: self.trainable] = True
                return chosen & ~self._chosen("head")
            case "head" | "head.weight" | "head.bias":
                prefix = self._head_or_raise() + name.removeprefix("head")
                places = self._below(prefix.removeprefix("."))
            case _:
                places = self._below(name) if name else []
        if not places:
            raise self._unknown(name)
        for place in places:
            chosen[place] = True
        return chosen

    def _below(self, prefix: str) -> list[slice]:
        """Where the tensors of a layer are; the prefix "" is the whole module."""
        inside = f"{prefix}." if prefix else ""
        return [s for n, s in self.names.items() if n == prefix or n.startswith(inside)]

    def _head_or_raise(self) -> str:
        if self.head_name is None:
            raise self._unfit(
                "the network has no head",
                why="its head would be its last nn.Linear, and it has none",
                fix=f"name the layer that ends it: {', '.join(self._layers())}",
            )
        return self.head_name

    def _layers(self) -> list[str]:
        return list(dict.fromkeys(name.split(".")[0] for name in self.names))

    def _unfit(self, what: str, *, why: str, fix: str) -> ConfigError:
        """The error of a network that has not what is asked of its columns or layers."""
        where = type(self._template).__name__
        return ConfigError(what, code="C032", where=where, why=why, fix=fix)

    def _unknown(self, name: str) -> ConfigError:
        parts = {n.rsplit(".", i)[0] for n in self.names for i in range(n.count(".") + 1)}
        return self._unfit(
            f"the network has no columns called {name!r}",
            why=similar(name, sorted(parts | {*WORDS})),
            fix=f"use {', '.join(WORDS)}, or a layer: {', '.join(self._layers())}, or a name "
            f"inside one, such as {next(iter(self.slices))}",
        )

    # -- rows and modules -------------------------------------------------------------------------

    def row(self, module: nn.Module | None = None) -> Tensor:
        """(P,) the numbers of a module of this kind, copied; by default the initial ones."""
        if module is None:
            return self.initial.clone()
        return torch.cat([t.detach().reshape(-1) for t in self._tensors(module)])

    def load(self, row: Tensor, module: nn.Module) -> None:
        """Write a row into a module of this kind."""
        self._check(row)
        with torch.no_grad():
            for t, columns in zip(self._tensors(module), self.slices.values(), strict=True):
                t.copy_(row[columns].view(t.shape))

    def module(self, row: Tensor) -> nn.Module:
        """A module of its own with these numbers, in evaluation mode."""
        module = copy.deepcopy(self._template)
        self.load(row, module)
        return module

    def fresh(self, rng: torch.Generator) -> Tensor:
        """(P,) another draw of the initial numbers: every layer resets itself, as PyTorch has it.

        Where a module has numbers of its own and no `reset_parameters`, each tensor keeps its
        values in another order. What does not learn stays as it is.

        >>> layout = Layout(nn.Linear(3, 2))
        >>> rng = torch.Generator().manual_seed(0)
        >>> bool((layout.fresh(rng) == layout.fresh(rng)).any())
        False
        """
        module = copy.deepcopy(self._template)
        with torch.random.fork_rng(devices=[]):
            torch.random.manual_seed(int(torch.randint(2**63 - 1, (), generator=rng)))
            for part in module.modules():
                reset_or_shuffle(part)
        return torch.cat([self.row(module)[: self.trainable], self.initial[self.trainable :]])

    def _tensors(self, module: nn.Module) -> list[Tensor]:
        """The tensors of a module in the order of the row."""
        everything, mine = tensors(module), tensors(self._template)
        for name in self.slices:
            got = everything[name].shape if name in everything else None
            if got != mine[name].shape:
                raise ValueError(
                    f"{name}: expected {tuple(mine[name].shape)}, "
                    f"got {'nothing' if got is None else tuple(got)}; is this the same network?"
                )
        return [everything[name] for name in self.slices]

    def _check(self, row: Tensor) -> None:
        if row.shape != (self.size,):
            raise ValueError(f"a row must be ({self.size},), got {tuple(row.shape)}")

    # -- work -------------------------------------------------------------------------------------

    def flat(self, row: Tensor, train: str = "all") -> FlatModule:
        """The one working module, in training mode, holding a copy of this row.

        It is valid until the next call: clone what shall outlive it. `train` names
        the columns that learn: gradients of the others stay zero, `mask` tells them apart, and a
        layer none of whose columns learns is in evaluation mode. The gradients are zero, integer
        buffers are as they were at first.
        """
        self._check(row)
        if self._mounted is None:
            self._mounted = FlatModule(copy.deepcopy(self._template), self)
        self._mounted.reset(row, self.mask(train))
        return self._mounted

    def mask(self, train: str) -> Tensor | None:
        """(trainable,) 1 for the columns of these names and 0 for others; None if all are."""
        if train not in self._masks:
            mask = torch.zeros_like(self.initial)
            mask[self.columns(train)] = 1
            mask = mask[: self.trainable]
            if not mask.any():
                raise self._unfit(
                    f"training {train!r} trains nothing",
                    why="none of these columns is a trainable parameter",
                    fix="train all, or layers that hold trainable parameters",
                )
            self._masks[train] = None if mask.all() else mask
        return self._masks[train]

    def predict(self, row: Tensor, x: Tensor, batch: int = 512) -> Tensor:
        """(N, K) logits of the model `row` in evaluation mode. What is mounted stays so."""
        return forward(self._read(row), x, batch)

    def features(self, row: Tensor, x: Tensor, batch: int = 512) -> tuple[Tensor, Tensor]:
        """What enters the head, flattened to (N, dim), and the logits (N, K)."""
        name, net = self._head_or_raise(), self._read(row)
        entered: list[Tensor] = []
        head = net.get_submodule(name)
        with head.register_forward_pre_hook(lambda _, got: entered.append(got[0].flatten(1))):
            logits = forward(net, x, batch)
        if sum(map(len, entered)) != len(x) or not entered:
            raise self._unfit(
                f"the head {name!r} does not see every sample once",
                why=f"it saw {sum(map(len, entered))} of {len(x)}: it may not be what ends the "
                "network",
                fix=f"name the layer that does: {', '.join(self._layers())}",
            )
        return torch.cat(entered), logits

    def outputs(self, row: Tensor, x: Tensor, layer: str, batch: int = 512) -> Tensor:
        """(N, ...) what a named layer puts out for these samples, in evaluation mode."""
        net, seen = self._read(row), list[Tensor]()
        layers = dict(net.named_modules())
        if layer not in layers:
            raise self._unfit(
                f"the network has no layer called {layer!r}",
                why=similar(layer, layers),
                fix=f"use one of {', '.join(filter(None, layers))}",
            )
        with layers[layer].register_forward_hook(lambda _, __, out: seen.append(out)):
            forward(net, x, batch)
        if sum(map(len, seen)) != len(x):
            raise self._unfit(
                f"the layer {layer!r} does not see every sample once",
                why=f"it saw {sum(map(len, seen))} of {len(x)}: it is used several times, or never",
                fix="name a layer that is used once",
            )
        return torch.cat(seen)

    def _read(self, row: Tensor) -> nn.Module:
        """A second working module, in evaluation mode, so that reading disturbs no training.

        It copies the row to a place of its own: the last bits of a matrix product can depend on
        where in memory its factors lie.
        """
        self._check(row)
        if self._reader is None:
            self._reader = FlatModule(copy.deepcopy(self._template), self)
        self._reader.reset(row)
        return self._reader.module.eval()


def forward(net: nn.Module, x: Tensor, batch: int) -> Tensor:
    """The module's outputs for all samples, a batch at a time, without gradients."""
    with torch.no_grad():
        return torch.cat([net(x[i : i + batch]) for i in range(0, max(len(x), 1), batch)])


def last_linear(module: nn.Module) -> str | None:
    """The name of the last `nn.Linear` registered, the usual head."""
    linear = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    return linear[-1] if linear else None


def reset_or_shuffle(part: nn.Module) -> None:
    """Draw the numbers that belong to one module itself anew, from the global random state."""
    reset = getattr(part, "reset_parameters", None)
    if callable(reset):
        reset()
        return
    with torch.no_grad():
        for t in part.parameters(recurse=False):
            t.copy_(t.flatten()[torch.randperm(t.numel())].view(t.shape))
