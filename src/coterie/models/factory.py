"""Networks by name, by a factory of the user's, or as they are."""

from __future__ import annotations

import inspect
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from coterie.core.errors import YOUR_CODE, ConfigError
from coterie.models import zoo

Factory = Callable[..., nn.Module]


def build(
    model: str | Factory | nn.Module,
    *,
    shape: Sequence[int],
    classes: int,
    norm: str | None = None,
    seed: int = 0,
    **options: Any,
) -> nn.Module:
    """The network for samples of this shape: the same seed gives the same bits.

    `model` is a name of `models.zoo.MODELS`, "auto" for one that suits the shape, a factory
    "package.module:function" or the function itself (given `shape`, `classes`, `norm` and `options`
    where its signature names them), or a module, which is returned as it is. `norm` is "group" or
    "batch" for networks that have normalisation layers. PyTorch's global generator is left as it
    was.

    >>> net = build("lenet5", shape=(1, 28, 28), classes=10)
    >>> sum(p.numel() for p in net.parameters())
    44426
    """
    shape = tuple(shape)
    if model == zoo.AUTO:
        model = zoo.suited(shape)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # layers draw their weights from it
        if isinstance(model, str) and ":" not in model:
            return _known(model, shape, classes, norm, options)
        name = model if isinstance(model, str) else _name(model)
        module = (
            model
            if isinstance(model, nn.Module)
            else _called(_imported(model), name, shape, classes, norm, options)
        )
        _probe(module, name, shape, classes)
        return module


def _known(
    name: str, shape: tuple[int, ...], classes: int, norm: str | None, options: dict[str, Any]
) -> nn.Module:
    """A network of the table."""
    entry = zoo.check(name, shape, norm, options)
    given = options if norm is None else {**options, "norm": norm}
    builder = pkgutil.resolve_name(entry.builder)
    try:
        module: nn.Module = builder(shape, classes, **given)
    except (TypeError, ValueError) as cause:
        raise _unfit(
            name,
            f"{name} cannot be built with {given}: {cause}",
            code="C034",
            fix="dropout is a share in [0, 1), hidden a list of widths",
        ) from cause
    return module


def _imported(model: str | Factory) -> Factory:
    """The user's factory itself, imported if it is named."""
    if not isinstance(model, str):
        return model
    try:
        factory: Factory = pkgutil.resolve_name(model)
    except YOUR_CODE as cause:  # whatever the user's module does while it is imported
        raise _unfit(
            model,
            f"{type(cause).__name__}: {cause}",
            why="importing the factory raised this",
            fix='write it as "package.module:function", of a module that is installed or lies in '
            "the folder where you are",
        ) from cause
    return factory


def _called(
    factory: Factory,
    name: str,
    shape: tuple[int, ...],
    classes: int,
    norm: str | None,
    options: dict[str, Any],
) -> nn.Module:
    """What the user's factory makes of what it asks for."""
    offered = {"shape": shape, "classes": classes}
    wanted = options if norm is None else {**options, "norm": norm}
    try:
        parameters = inspect.signature(factory).parameters.values()
        named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        anything = any(p.kind == p.VAR_KEYWORD for p in parameters)
    except (TypeError, ValueError) as cause:  # not callable, or nothing is known of it
        raise _unfit(
            name,
            str(cause),
            why=f"a factory must be a function or class, this is {type(factory).__name__}",
            fix="name a function that returns an nn.Module",
        ) from cause
    if not anything and (unknown := [key for key in wanted if key not in named]):
        raise _unfit(
            name,
            f"{name} takes no {unknown[0]!r}",
            code="C034",
            why=f"it takes {', '.join(sorted(named)) or 'nothing'}",
            fix=f"leave {unknown[0]} out, or add it to the factory's signature",
        )
    try:
        module = factory(**{k: v for k, v in offered.items() if k in named}, **wanted)
    except YOUR_CODE as cause:  # the user's own code
        raise _unfit(
            name,
            f"{type(cause).__name__}: {cause}",
            why=f"calling the factory for shape {shape} and {classes} classes raised this",
            fix="it may name shape and classes among its arguments; all others need a default",
        ) from cause
    if not isinstance(module, nn.Module):
        raise _unfit(
            name,
            f"{name} returned {type(module).__name__}, not an nn.Module",
            fix="return the network itself",
        )
    return module


def _probe(module: nn.Module, name: str, shape: tuple[int, ...], classes: int) -> None:
    """Refuse a user's network that cannot take the data, before a client is asked to train it.

    This also gives lazy layers their sizes.
    """
    modes = [(part, part.training) for part in module.modules()]
    try:
        with torch.no_grad():
            out = module.eval()(torch.zeros(2, *shape))
    except YOUR_CODE as cause:  # the user's own code
        raise _unfit(
            name,
            f"{type(cause).__name__}: {cause}",
            why=f"the network raised this for 2 samples: float32 of shape {(2, *shape)}",
            fix=_remedy(module, cause),
        ) from cause
    finally:
        for part, training in modes:
            part.training = training
    if not isinstance(out, Tensor):
        raise _unfit(
            name,
            f"{name} answers a {type(out).__name__}, expected a tensor of shape {(2, classes)}",
            why="coterie takes the loss and the accuracy from what the network returns",
            fix=f"return the logits alone{_inside(out)}: one number for each class",
        )
    if not out.is_floating_point():
        raise _unfit(
            name,
            f"{name} answers {out.dtype}, expected floating-point numbers",
            why="the loss is taken from the logits, and whole numbers have no gradient",
            fix="return the logits, not their argmax",
        )
    if out.shape != (2, classes):
        raise _unfit(
            name,
            f"{name} answers {tuple(out.shape)} to 2 samples, expected {(2, classes)}",
            why=f"the data have {classes} classes: one output for each",
            fix="let the factory take classes, and size its last layer by it"
            if out.ndim == 2 and len(out) == 2
            else "keep the samples apart, and give one row of logits for each: flatten from "
            "dimension 1 on",
        )


def _remedy(module: nn.Module, cause: BaseException) -> str:
    """What to do about a network that does not take the samples, by what it said."""
    said = str(cause).lower()
    kinds = {str(p.dtype).removeprefix("torch.") for p in module.parameters()} - {"float32"}
    if "long, int" in said:  # an embedding looks numbers up
        return "samples are float32: take them as they are, or begin with x.long()"
    if kinds or "dtype" in said or "scalar type" in said or "same type" in said:
        other = f", and it has {', '.join(sorted(kinds))}" if kinds else ""
        return f"samples are float32{other}: make the network float32 too, with .float()"
    if isinstance(cause, TypeError) and "argument" in said:
        return "let forward take the samples alone: forward(self, x)"
    return "let the factory take shape, and size its first layers by it"


def _inside(out: object) -> str:
    """Where the logits may be in what a network returned."""
    if isinstance(out, Mapping):
        return f", such as out[{next(iter(out), 'logits')!r}]"
    return ", such as out[0]" if isinstance(out, tuple | list) else ""


def _unfit(name: str, what: str, *, code: str = "C031", why: str = "", fix: str) -> ConfigError:
    """The error of a network that cannot be built or used."""
    return ConfigError(what, code=code, where=f'model "{name}"', why=why, fix=fix)


def importable(model: str | Factory | nn.Module) -> str:
    """The name by which another process can build a network again; "" if there is none.

    >>> importable("cnn-s"), importable(build), importable(nn.Linear(1, 1))
    ('cnn-s', 'coterie.models.factory:build', '')
    """
    if isinstance(model, str):
        return model
    home, name = (getattr(model, key, "") for key in ("__module__", "__qualname__"))
    found: Any = sys.modules.get(home) if home != "__main__" and name else None
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{home}:{name}" if found is model else ""


def _name(model: Factory | nn.Module) -> str:
    """What to call a model that came without a name."""
    return getattr(model, "__name__", None) or type(model).__name__
