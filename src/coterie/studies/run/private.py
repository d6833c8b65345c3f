"""Differential privacy in a run: what it will cost a client, what it did cost, and what it refuses.

Two federations are neighbours if one sample of one client is left out. How many samples a client
has is no secret: it weighs the averages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from coterie.config import Config
from coterie.core.errors import ConfigError
from coterie.core.layout import Layout
from coterie.core.types import Engine, Known, Method, Release, Task
from coterie.engines.accounts import epsilons
from coterie.methods import METHODS
from coterie.tasks import Privacy, Solver
from coterie.tasks.accounting import epsilon, least_noise, spent


def noise_of(method: Method) -> Privacy:
    """The noise that a method's clients train with."""
    solver = getattr(method, "solver", None)
    return solver.privacy if isinstance(solver, Solver) else Privacy()


def expect_possible(method: Method, layout: Layout) -> None:
    """Refuse noise where something would leave a client without it."""
    if not noise_of(method).on:
        return
    cls = type(method)
    entries = [e for e in METHODS.values() if f"coterie.methods.{e.path}" == address(cls)]
    covered = [name for name, entry in METHODS.items() if entry.noise]
    why = fix = ""
    if entries and not entries[0].noise:
        why = f"not all that {entries[0].name} sends can be under noise"
        fix = f"use {', '.join(covered)}"
    elif getattr(method, "follow", False):
        why = "it asks clients for gains, which no noise covers"
        fix = "Kin(follow=False) keeps the first groups"
    elif layout.has_batch_norm:
        why = "batch normalisation mixes samples, so that none of them can be hidden"
        fix = 'another normalisation: model.norm = "group", or nn.GroupNorm'
    if why:
        raise ConfigError(f"{cls.__name__} cannot be private here", code="C073", why=why, fix=fix)


def with_noise(config: Config, make: Callable[[Config], Method], sizes: Tensor) -> Config:
    """The experiment with the noise that its epsilon needs, if it named none.

    It is that of the client that would spend most if it were drawn in every round.
    """
    asked = config.privacy
    if asked.epsilon is None:
        return config
    guess = replace(config, privacy=replace(asked, noise_multiplier=asked.noise_multiplier or 1.0))
    plan = planned(make(guess), config.train.rounds, sizes)
    if asked.noise_multiplier is not None:
        expect_within(plan, asked.epsilon, asked.delta)
        return config
    noise = least_noise(plan, asked.epsilon, asked.delta)
    return replace(config, privacy=replace(asked, noise_multiplier=noise))


def asked(config: Config) -> Privacy:
    """The noise of an experiment; none before its epsilon was turned into some."""
    how = config.privacy
    return Privacy(how.noise_multiplier or 0.0, how.clip, how.delta)


def address(cls: type) -> str:
    """Where a class is defined, "module:Class"."""
    return f"{cls.__module__}:{cls.__qualname__}"


def planned(method: Method, rounds: int, sizes: Tensor) -> list[Release]:
    """What the client that spends most would release if it took part in every round.

    Fewer samples are drawn more often: it is the smallest client, or one whose steps are more.
    """
    asks = getattr(method, "asks", None)
    if asks is None:
        raise ConfigError(
            f"how much {type(method).__name__} will ask is not known beforehand",
            code="C073",
            fix="give privacy.noise_multiplier; what was spent is reported",
        )
    plans = [releases(asks(rounds, sizes), int(n)) for n in sizes.unique().tolist()]
    delta = noise_of(method).delta
    return max(plans, key=lambda plan: epsilon(spent(plan), delta))


def releases(asks: Sequence[tuple[Task, int]], samples: int) -> list[Release]:
    """What a client of so many samples releases by these tasks, each so many times."""
    found = []
    for task, times in asks:
        known = Known(layout=None, k=1, classes=2, samples=samples)  # type: ignore[arg-type]
        each = task.spends(known) or ()
        found += [one._replace(times=one.times * times) for one in each]
    return found


def expect_within(plan: Sequence[Release], limit: float, delta: float) -> None:
    """Refuse a noise with which what is planned would spend more than it may."""
    would = epsilon(spent(plan), delta)
    if would > limit:
        raise ConfigError(
            f"with this noise a client may spend epsilon {would:.2f}, which is more than {limit:g}",
            code="C072",
            where="privacy.noise_multiplier",
            fix=f"at least {least_noise(plan, limit, delta):g}, fewer rounds, or a larger "
            "privacy.epsilon",
        )


def accounts(fed: Engine, method: Method) -> dict[str, Any]:
    """What each client has spent, for the summary of a run; nothing without noise."""
    how = noise_of(method)
    if not how.on:
        return {}
    spends: Mapping[int, float] = epsilons(fed.memories(), how.delta)
    each = {fed.names[i]: round(value, 4) for i, value in spends.items()}
    return {
        "privacy": {
            "epsilon_max": max(each.values(), default=0.0),
            "epsilon_mean": round(sum(each.values()) / max(len(each), 1), 4),
            "delta": how.delta,
            "noise_multiplier": how.noise,
            "clip": how.clip,
            "epsilon": each,
        }
    }


def words(method: Method) -> str:
    """The noise of a method for people; "" without any."""
    how = noise_of(method)
    if not how.on:
        return ""
    return f"noise {how.noise:g} x clip {how.clip:g} on what every sample contributes"
