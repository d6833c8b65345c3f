"""Engines: ways to reach the clients. `serial` is the truth; every other is tested against it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.errors import ConfigError

if TYPE_CHECKING:
    from coterie.data.population import Population
    from coterie.layout import Layout
    from coterie.types import Engine

ENGINES = {"serial": "one client after another, in this process: the reference"}


def build(name: str, population: Population, layout: Layout, seed: int) -> Engine:
    """The engine of this name over a population of clients."""
    if name == "serial":
        from coterie.engine.serial import Serial

        return Serial(
            population,
            layout,
            classes=population.classes,
            seed=seed,
            sizes=population.sizes,
            names=population.names,
            public=population.public,
        )
    raise ConfigError(
        f"unknown engine {name!r}", code="C042", fix=f"use one of {', '.join(ENGINES)}"
    )
