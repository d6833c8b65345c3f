"""What is asked of input: shapes, finite numbers, whole ones, or an error that says so."""

from __future__ import annotations

import math
import os
from numbers import Integral
from pathlib import Path

import torch
from torch import Tensor

from coterie.core.errors import ConfigError, NotFiniteError

PIECE = 8000  # numbers that one thread is through with before another one is awake


def total_square(x: Tensor) -> float:
    """The sum of all squares, which is not finite if a number is not, or is far too large.

    Piece by piece on this thread alone: helpers would be woken for less than that takes, and while
    they wait for more they are in the way of workers.
    """
    flat = x.detach().reshape(-1)
    if flat.numel() <= PIECE:
        return float(flat @ flat)
    return sum(float(piece @ piece) for piece in flat.split(PIECE))


def finite(x: Tensor, name: str) -> None:
    """Every number of `x` is finite."""
    if not x.numel() or not x.is_floating_point() or math.isfinite(total_square(x)):
        return
    # Squares may leave what numbers do not. aminmax passes NaN on, in one pass and without a copy.
    low, high = torch.aminmax(x.detach())
    if not bool(torch.isfinite(low) & torch.isfinite(high)):
        raise NotFiniteError(f"{name} holds NaN or infinite numbers; leave those clients out first")


def shaped(x: Tensor, name: str, *names: str) -> None:
    """A floating tensor with one dimension for each of `names`, and finite."""
    if x.ndim != len(names) or not x.is_floating_point():
        wanted = ", ".join(names) + ("," if len(names) == 1 else "")
        raise ValueError(
            f"{name} must be a floating tensor of shape ({wanted}), "
            f"got {x.dtype} of shape {tuple(x.shape)}"
        )
    finite(x, name)


def rows(x: Tensor, name: str = "rows") -> None:
    """(n, P) finite floating numbers, at least one row."""
    shaped(x, name, "n", "P")
    if not len(x):
        raise ValueError(f"{name} must have at least one row")


def square(x: Tensor, name: str) -> None:
    """(n, n) finite floating numbers, at least one row."""
    rows(x, name)
    if x.shape[0] != x.shape[1]:
        raise ValueError(f"{name} must be square, got {tuple(x.shape)}")


def distances(x: Tensor, name: str = "distance") -> None:
    """(n, n) symmetric, not negative, zero on the diagonal, up to rounding."""
    square(x, name)
    low, high = (float(v) for v in torch.aminmax(x))
    slack = 1e-5 * max(-low, high)
    if low < -slack:
        raise ValueError(f"{name} must not be negative, got {low:.3g}")
    if float(x.diagonal().abs().max()) > slack:
        raise ValueError(f"{name} must be 0 on the diagonal; is this a similarity?")
    for i in range(0, len(x), 1024):  # in slices: the matrix may be the largest thing in memory
        if float((x[i : i + 1024] - x[:, i : i + 1024].T).abs().max()) > slack:
            raise ValueError(f"{name} must be symmetric")


def weights(x: Tensor, name: str, n: int) -> None:
    """(n,) finite numbers, none negative."""
    if x.ndim != 1 or len(x) != n:
        raise ValueError(f"{name} must be ({n},), got {tuple(x.shape)}")
    finite(x, name)
    if n and float(x.min()) < 0:
        raise ValueError(f"{name} must not be negative, got {float(x.min()):.3g}")


def indices(x: Tensor, name: str, n: int, k: int | None = None) -> None:
    """(n,) whole numbers from 0 on, below k if given."""
    if x.shape != (n,) or x.is_floating_point() or x.dtype == torch.bool:
        raise ValueError(f"{name} must be ({n},) whole numbers, got {x.dtype} {tuple(x.shape)}")
    if n and int(x.min()) < 0:
        raise ValueError(f"{name} must not be negative, got {int(x.min())}; place everybody first")
    if n and k is not None and int(x.max()) >= k:
        raise ValueError(f"{name} must be below {k}, got {int(x.max())}")


def count(k: int, name: str = "k") -> None:
    """A whole number of at least one."""
    if k < 1:
        raise ValueError(f"{name} must be at least 1, got {k}")


def whole(given: object, name: str, least: int = 0) -> None:
    """A whole number from `least` on; 1.9 or "1" is told before it is taken for one."""
    if isinstance(given, bool) or not isinstance(given, Integral) or given < least:
        raise ConfigError(
            f"{name} = {given!r}",
            code="C060",
            why=f"it is a whole number from {least} on",
            fix=f"write {name}={max(least, 1)}, for example",
        )


def path(given: object, name: str, such: str = "runs/mine") -> Path:
    """A file or folder; anything else is told before the system is asked for it."""
    if not isinstance(given, str | os.PathLike):
        raise ConfigError(
            f"{name} = {given!r} is no path",
            code="C060",
            fix=f'write {name}="{such}", for example',
        )
    return Path(given)
