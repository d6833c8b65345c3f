"""Samples of any kind, brought into the form of images (N, C, H, W) or features (N, D)."""

from __future__ import annotations

import numpy as np

from coterie.core.errors import DataError
from coterie.data.readers.raw import Array

CHANNELS = (1, 3, 4)  # what a channel axis is recognised by: gray, RGB, RGBA


def in_one_form(
    x: Array,
    x_test: Array | None,
    *,
    where: str,
    shape: tuple[int, ...] | None = None,
    channels: str | None = None,
) -> tuple[Array, Array | None, float]:
    """Both sets in one form, and the peak that means "full".

    Images (N, H, W), (N, H, W, C) or (N, C, H, W) become (N, C, H, W): uint8 where they are whole
    numbers in 0..255 (peak 255), else float32. Anything of one or two axes is features, float32.
    """
    if x_test is not None and x_test.shape[1:] != x.shape[1:]:
        raise DataError(
            f"{where}: test samples have shape {x_test.shape[1:]}, training samples {x.shape[1:]}",
            code="D019",
            where=where,
            fix="bring both to one shape",
        )
    formed = [axes_in_order(t, where, shape, channels) for t in (x, x_test) if t is not None]
    images = formed[0].ndim == 4
    pixels = images and all(
        t.dtype.kind in "biu" and (not t.size or (t.min() >= 0 and t.max() <= 255)) for t in formed
    )
    kind: type[np.generic] = np.uint8 if pixels else np.float32
    peak = 255.0 if pixels else 65535.0 if images and formed[0].dtype == np.uint16 else 1.0
    stored = [_stored(t, kind, where) for t in formed]
    return stored[0], stored[1] if len(stored) > 1 else None, peak


def axes_in_order(
    x: Array, where: str, shape: tuple[int, ...] | None, channels: str | None
) -> Array:
    """The same numbers with the axes in order: (N, C, H, W) or (N, D).

    >>> axes_in_order(np.zeros((5, 32, 32, 3)), "x", None, None).shape
    (5, 3, 32, 32)
    """
    if x.dtype.kind not in "biuf":
        raise DataError(
            f"{where}: samples are of type {x.dtype}, not numbers",
            code="D013",
            where=where,
            fix="give integers or floats",
        )
    if channels not in (None, "first", "last"):
        raise DataError(
            f"channels = {channels!r} cannot be meant",
            code="D004",
            where=where,
            fix='channels is "first" for (N, C, H, W) or "last" for (N, H, W, C)',
        )
    if shape is not None:
        x = _reshape(x, where, shape)
    if x.ndim <= 2:
        return x.reshape(len(x), -1)
    if x.ndim == 3:
        return x[:, None]
    if x.ndim == 4:
        last = _last(x.shape, where) if channels is None else channels == "last"
        return np.moveaxis(x, -1, 1) if last else x
    raise DataError(
        f"{where}: samples have {x.ndim - 1} axes",
        code="D018",
        where=where,
        why=f"the array has shape {x.shape}; images have two or three axes, features one",
        fix="flatten or split the samples, or give shape=(C, H, W)",
    )


def _reshape(x: Array, where: str, shape: tuple[int, ...]) -> Array:
    """Samples in the shape that was asked for."""
    try:
        return x.reshape(len(x), *shape)
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{where}: samples of shape {x.shape[1:]} cannot be given the shape {shape!r}",
            code="D018",
            where=where,
            fix="the product of the shape is the number of values of one sample",
        ) from error


def _last(shape: tuple[int, ...], where: str) -> bool:
    """Whether the last axis is the channels, told from the sizes; unclear sizes are an error."""
    first, last = shape[1] in CHANNELS, shape[3] in CHANNELS
    if first and last:  # tiny images: the two equal axes are height and width
        first, last = shape[2] == shape[3], shape[1] == shape[2]
    if first == last:
        raise DataError(
            f"{where}: it is unclear which axis of {shape} holds the channels",
            code="D018",
            where=where,
            why="an axis of size 1, 3 or 4 at one end, or square images, would say it",
            fix='say channels="first" or channels="last"',
        )
    return last


def _stored(x: Array, kind: type[np.generic], where: str) -> Array:
    """Samples as numbers of one kind in memory of their own, all of them finite."""
    with np.errstate(over="ignore"):  # what does not fit a float32 is caught just below
        stored = np.ascontiguousarray(x, dtype=kind)
    if kind is np.float32 and not np.isfinite(stored).all():
        row = int((~np.isfinite(stored)).reshape(len(stored), -1).any(1).argmax())
        raise DataError(
            f"{where}: sample {row} holds a value that is not a finite number",
            code="D013",
            where=f"{where}, sample {row}",
            why="missing values and infinities cannot be trained on",
            fix="fill or leave out the samples with missing values",
        )
    return stored if stored.flags.writeable else stored.copy()
