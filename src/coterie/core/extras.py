"""Packages that only an extra brings: whoever needs one asks here first."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from coterie.core.errors import ConfigError

FLOWER = ("flwr", "cryptography")  # what the extra brings, as it is imported


def require(what: str, extra: str, packages: Sequence[str]) -> None:
    """Refuse to go on without the packages of an extra, with the line that installs them."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"{what} needs {' and '.join(missing)}, which is not installed",
            code="C052",
            fix=f'pip install "coterie[{extra}]"',
        )
