"""What cannot be divided as asked, in words."""

from __future__ import annotations

import numpy as np

from coterie.core.errors import DataError
from coterie.data.divide.dealing import Ints


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
    shown = ", ".join(map(str, small[:10])) + (", ..." if len(small) > 10 else "")
    return DataError(
        f"{len(small)} of {len(sizes)} clients have fewer than {least} samples",
        code="D032",
        why=f"after {draws:,} {'draws' if draws > 1 else 'draw'} they have {shown}",
        fix=f"raise alpha, ask for fewer clients, lower min_samples, {way}",
    )


def has_labels(labels: int, wanted: int, knob: str) -> None:
    """Refuse more labels than occur."""
    if wanted > labels:
        raise DataError(
            f"{knob} = {wanted}, but the data have {labels} labels",
            code="D031",
            fix=f"lower {knob} to at most {labels}",
        )


def groups_fit(groups: int, n: int, name: str) -> None:
    """Refuse more groups than clients."""
    if groups > n:
        raise DataError(
            f"{name} has {groups} groups for {n} {'clients' if n > 1 else 'client'}",
            code="D039",
            fix=f"ask for at least {groups} clients, or fewer groups",
        )
