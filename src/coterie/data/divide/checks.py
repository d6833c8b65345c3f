"""What cannot be divided as asked, in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coterie.core.errors import DataError
from coterie.data.divide.dealing import Ints
from coterie.data.kinds import Kind


def first_few(names: Sequence[str]) -> str:
    """The first ten names of many.

    >>> first_few("abcdefghijkl")
    'a, b, c, d, e, f, g, h, i, j, ...'
    """
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")


def enough(samples: int, n: int, least: int) -> None:
    """Refuse to give everyone more than there is."""
    if n * least > samples:
        raise DataError(
            f"{n:,} clients cannot have {least} samples each",
            code="D032",
            why=f"there are {samples:,} samples",
            fix=f"lower min_samples to at most {samples // n}, "
            f"or ask for at most {samples // least:,} clients",
        )


def too_small(sizes: Ints, least: int, way: str, draws: int = 1) -> DataError:
    """The error that names the smallest clients."""
    small = np.sort(sizes[sizes < least])
    shown = first_few([str(size) for size in small])
    return DataError(
        f"{len(small)} of {len(sizes)} clients have fewer than {least} samples",
        code="D032",
        why=f"after {draws:,} {'draws' if draws > 1 else 'draw'} they have {shown}",
        fix=f"raise alpha, ask for fewer clients, lower min_samples, {way}",
    )


def enough_labels(kind: Kind, labels: int) -> None:
    """Refuse a kind that asks for more labels than occur."""
    wanted = getattr(kind, kind.labels_in)
    if wanted > labels:
        raise DataError(
            f"{kind.labels_in} = {wanted}, but the data have {labels} labels",
            code="D031",
            fix=f"lower {kind.labels_in} to at most {labels}",
        )


def groups_of(kind: Kind, n: int) -> int:
    """How many groups n clients come in; more groups than clients are refused."""
    found = getattr(kind, kind.groups_in)
    groups = len(found) if isinstance(found, tuple) else int(found)
    if groups > n:
        raise DataError(
            f"{kind.name} has {groups} groups for {n} {'clients' if n > 1 else 'client'}",
            code="D039",
            fix=f"ask for at least {groups} clients, or fewer groups",
        )
    return groups
