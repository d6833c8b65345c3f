"""Engines: ways to reach the clients. `serial` is the truth; every other is tested against it.

front      the federation as methods see it: the same for every engine
question   what a backend is asked, and the interface that every backend has
together   tasks that go on side by side: what stacked and compiled have in common
chain      a network read as a straight line of layers, which both can train
serial, stacked, compiled, workers, ray, flower      the six backends
choice     which of them suits an experiment

May touch: core, words, tasks, data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from coterie.core.errors import ConfigError
from coterie.core.events import Listener, silence

if TYPE_CHECKING:
    from coterie.core.layout import Layout
    from coterie.core.types import Engine, Method
    from coterie.data.population import Population
    from coterie.engines.choice import Choice
    from coterie.engines.question import Backend
    from coterie.engines.serial import Serial

ENGINES = {
    "auto": "the fastest of the next four for the model, the data and the cores at hand",
    "serial": "one client after another, in this process: the reference",
    "pool": "one client after another in each of several processes: the same bits as serial",
    "stacked": "clients side by side in one set of operations, in one process or several",
    "compiled": "training compiled for the network's shapes, in one process or several",
    "ray": "actors of Ray, here or on a cluster: the same bits as compiled, or else as stacked",
    "flower": "clients on machines of their own: coterie serve and coterie join",
}


def build(
    name: str,
    population: Population,
    layout: Layout,
    seed: int,
    workers: int = 1,
    address: str | None = None,
    inner: str = "",
    tell: Listener = silence,
    through: Callable[[Backend], Backend] | None = None,
) -> Engine:
    """The engine of this name over a population of clients, in so many processes.

    `address` is that of a Ray cluster; without one, Ray is started on this machine. `inner` is the
    engine inside Ray's actors, stacked or compiled. `tell` hears what takes a while; answers come
    `through` another backend, if one is given.
    """
    from coterie.engines.front import Front

    behind = backend(name, population, layout, workers, address, inner, tell)
    return Front(
        population,
        layout,
        classes=population.classes,
        seed=seed,
        sizes=population.sizes,
        names=population.names,
        public=population.public,
        groups=population.group,
        columns=population.columns,
        backend=through(behind) if through else behind,
    )


def backend(
    name: str,
    population: Population,
    layout: Layout,
    workers: int,
    address: str | None,
    inner: str = "",
    tell: Listener = silence,
) -> Backend:
    """Whoever answers the questions of an engine of this name."""
    if name not in ENGINES or name == "auto":
        known = ", ".join(n for n in ENGINES if n != "auto")
        raise ConfigError(f"unknown engine {name!r}", code="C042", fix=f"use one of {known}")
    if name == "flower":
        raise ConfigError(
            "clients of the flower engine are other machines",
            code="C050",
            fix="`coterie serve FILE --certs DIR/server` starts a server, and "
            "`coterie join SERVER --data PATH --certs DIR/clients/NAME` joins it",
        )
    within = inside(inner or name, population, layout, workers, tell)
    if name == "serial" or (name in ("stacked", "compiled") and workers < 2):
        return within
    from coterie.engines.workers.backend import Workers

    if name == "ray":
        from coterie.engines.ray import Actors

        return Workers(within, Actors(workers, address))
    from coterie.engines.workers.processes import Processes

    return Workers(within, Processes(workers))


def inside(
    name: str, population: Population, layout: Layout, workers: int, tell: Listener = silence
) -> Serial:
    """What answers in one process: the engine of this name, or the reference."""
    samples = population[0].x[:4]
    if name == "compiled":
        from coterie.engines.compiled.host import NotCompilableError, check_machine

        try:
            check_machine()
        except NotCompilableError as why:
            raise ConfigError(
                "the compiled engine cannot run here",
                code="C054",
                why=str(why),
                fix='engine.name = "stacked" trains the same within rounding',
            ) from None
        from coterie.engines.compiled.backend import Compiled

        return Compiled(layout, samples, tell, workers=workers)
    if name in ("stacked", "ray"):
        from coterie.engines.stacked.backend import Stacked

        return Stacked(layout, samples, workers=workers)
    from coterie.engines.serial import Serial

    return Serial()


def settle(
    name: str, workers: int, population: Population, layout: Layout, method: Method
) -> Choice:
    """The engine that is meant: `auto` becomes one of the others, no workers as many as cores."""
    from coterie.engines.choice import Choice, choose, cores, inside_actors

    if name == "auto":
        return choose(layout, method, population.sizes, population.shape, workers or cores())
    several = name in ("pool", "stacked", "compiled", "ray")
    inner = inside_actors(layout, method, population.shape) if name == "ray" else ""
    return Choice(name, (workers or cores()) if several else 1, "as asked", inner)
