"""Engines: ways to reach the clients. `serial` is the truth; every other is tested against it.

front      the federation as methods see it: the same for every engine
question   what a backend is asked, and the interface that every backend has
serial, stacked, workers, ray, flower      the five backends
choice     which of them suits an experiment

May touch: core, words, tasks, data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.core.errors import ConfigError

if TYPE_CHECKING:
    from coterie.core.layout import Layout
    from coterie.core.types import Engine, Method
    from coterie.data.population import Population
    from coterie.engines.choice import Choice
    from coterie.engines.question import Backend

ENGINES = {
    "auto": "the fastest of the next three for the model, the data and the cores at hand",
    "serial": "one client after another, in this process: the reference",
    "pool": "one client after another in each of several processes: the same bits as serial",
    "stacked": "clients side by side in one set of operations, in one process or several",
    "ray": "actors of Ray, here or on a cluster: the same bits as stacked with as many workers",
    "flower": "clients on machines of their own: coterie serve and coterie join",
}


def build(
    name: str,
    population: Population,
    layout: Layout,
    seed: int,
    workers: int = 1,
    address: str | None = None,
) -> Engine:
    """The engine of this name over a population of clients, in so many processes.

    `address` is that of a Ray cluster; without one, Ray is started on this machine.
    """
    from coterie.engines.front import Front

    return Front(
        population,
        layout,
        classes=population.classes,
        seed=seed,
        sizes=population.sizes,
        names=population.names,
        public=population.public,
        backend=backend(name, population, layout, workers, address),
    )


def backend(
    name: str, population: Population, layout: Layout, workers: int, address: str | None
) -> Backend:
    """Whoever answers the questions of an engine of this name."""
    if name not in ENGINES or name == "auto":
        known = ", ".join(n for n in ENGINES if n != "auto")
        raise ConfigError(f"unknown engine {name!r}", code="C042", fix=f"use one of {known}")
    if name == "flower":
        raise ConfigError(
            "clients of the flower engine are other machines",
            code="C050",
            fix="coterie serve FILE starts a server, coterie join SERVER --data PATH joins it",
        )
    from coterie.engines.serial import Serial
    from coterie.engines.stacked.backend import Stacked

    inner = Serial()
    if name in ("stacked", "ray"):
        inner = Stacked(layout, population[0].x[:4], workers=workers)
    if name == "serial" or (name == "stacked" and workers < 2):
        return inner
    from coterie.engines.workers.backend import Workers

    if name == "ray":
        from coterie.engines.ray import Actors

        return Workers(inner, Actors(workers, address))
    from coterie.engines.workers.processes import Processes

    return Workers(inner, Processes(workers))


def settle(
    name: str, workers: int, population: Population, layout: Layout, method: Method
) -> Choice:
    """The engine that is meant: `auto` becomes one of the others, no workers as many as cores."""
    from coterie.engines.choice import Choice, choose, cores

    if name == "auto":
        return choose(layout, method, population.sizes, population.shape, workers or cores())
    several = name in ("pool", "stacked", "ray")
    return Choice(name, (workers or cores()) if several else 1, "as asked")
