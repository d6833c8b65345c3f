"""The table of methods. Reading it imports none of them, so a list costs nothing.

One file is one paper, or one family of methods that share a body. `find` loads a method.

May touch: core, words, tasks.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from coterie.core.errors import ConfigError
from coterie.core.suggest import similar
from coterie.methods.entries import Entry as Entry
from coterie.methods.entries.clustered import CLUSTERED
from coterie.methods.entries.personalised import PERSONALISED
from coterie.methods.entries.shared import SHARED

if TYPE_CHECKING:
    from coterie.core.types import Method


METHODS: dict[str, Entry] = {
    entry.name: entry for entry in (CLUSTERED[0], *SHARED, *PERSONALISED, *CLUSTERED)
}  # ours first


def public_samples(name: str) -> int:
    """Samples of each class that the server of a method must hold; 0 for a method of your own.

    >>> public_samples("feddsmic"), public_samples("fedavg"), public_samples("mine:Method")
    (1, 0, 0)
    """
    return METHODS[name].public if name in METHODS else 0


def find(name: str) -> type[Method]:
    """The class of a method: one of METHODS, or your own as "package.module:Class"."""
    if name in METHODS:
        module, cls = METHODS[name].path.split(":")
        return load(f"coterie.methods.{module}", cls)
    if ":" in name:
        module, cls = name.split(":", 1)
        try:
            return load(module, cls)
        except (ImportError, AttributeError) as cause:
            raise ConfigError(
                f"method {name!r} cannot be imported: {cause}",
                code="C040",
                fix='write it as "package.module:Class", of a module that is installed or lies in '
                "the folder where you are",
            ) from cause
    raise ConfigError(
        f"unknown method {name!r}",
        code="C041",
        fix=similar(name, METHODS) or f"use one of {', '.join(METHODS)}",
    )


def load(module: str, cls: str) -> type[Method]:
    """A class by its address."""
    found: type[Method] = getattr(import_module(module), cls)
    return found
