"""The two sets that need no file: scikit-learn's digits, and Gaussian clouds."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Ge

from coterie.core.bounds import Count, NonNegative
from coterie.core.errors import DataError
from coterie.core.rng import numpy_stream
from coterie.data.readers.class_names import DIGITS
from coterie.data.readers.raw import Raw, bounded


def read_digits() -> Raw:
    """1,797 handwritten digits: (1797, 8, 8), whole numbers in 0..16."""
    from sklearn.datasets import load_digits  # here: scikit-learn takes a while to import

    digits = load_digits()
    x, y = digits.images.astype(np.uint8), digits.target
    return Raw(x, y, classes=DIGITS, peak=16.0)


def read_synthetic(
    *,
    samples: Count = 2000,
    classes: Annotated[int, Ge(2)] = 10,
    features: Count = 32,
    separation: NonNegative = 3.0,
    seed: int = 0,
) -> Raw:
    """Gaussian clouds of deviation 1 around one prototype per class, equally many of each.

    The prototypes point in random directions at distance `separation` from the origin, so 0 leaves
    nothing to learn and 10 nothing to err on. The prototypes depend on the seed but not on the
    number of samples.
    """
    if samples < classes:
        raise DataError(
            f"{samples} samples cannot show {classes} classes",
            code="D004",
            where="synthetic",
            fix=f"samples must be at least {classes}",
        )
    bounded(8 * samples * features, "synthetic")
    prototypes = numpy_stream(seed, "synthetic", "prototypes").normal(size=(classes, features))
    prototypes *= separation / np.linalg.norm(prototypes, axis=1, keepdims=True)
    rng = numpy_stream(seed, "synthetic", "samples")
    y = rng.permutation(np.arange(samples) % classes)
    x = prototypes[y] + rng.normal(size=(samples, features))
    return Raw(x.astype(np.float32), y)
