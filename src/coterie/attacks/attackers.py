"""Who the hostile clients are."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import torch
from torch import Tensor

from coterie.attacks.attack import Attack
from coterie.core.errors import ConfigError
from coterie.core.rng import stream
from coterie.core.suggest import similar
from coterie.data.population import Population


class Attackers(NamedTuple):
    """An attack, and who carries it out: clients by increasing number."""

    attack: Attack
    who: tuple[int, ...] = ()


NOBODY = Attackers(Attack())


def attackers(attack: Attack, population: Population, seed: int) -> Attackers:
    """The clients that are hostile."""
    if not attack.on:
        return NOBODY
    group = population.group
    if attack.kind == "cluster-capture" and (group is None or attack.target not in group):
        planted = "none" if group is None else ", ".join(map(str, group.unique().tolist()))
        raise ConfigError(
            f"there is no planted group {attack.target} to pass for",
            code="C085",
            where=f"attack.target; the planted groups are: {planted}",
            fix="choose one of them, or a partition with groups, as rotation",
        )
    found = named(attack, population) if attack.clients else drawn(attack, population, seed)
    if len(found) in (0, len(population)):
        raise ConfigError(
            f"{'every' if found else 'no'} client would be hostile",
            code="C085",
            where="attack.clients" if attack.clients else f"attack.share = {attack.share}",
            fix="leave some honest" if found else "a larger share, or name some in attack.clients",
        )
    return Attackers(attack, found)


def named(attack: Attack, population: Population) -> tuple[int, ...]:
    """Those that are listed."""
    numbers = {name: i for i, name in enumerate(population.names)}
    unknown = [name for name in attack.clients if name not in numbers]
    if unknown:
        raise ConfigError(
            f"there is no client {unknown[0]} to be hostile",
            code="C085",
            where="attack.clients",
            fix=similar(unknown[0], list(numbers), "client") or "`coterie data` lists the clients",
        )
    return tuple(sorted({numbers[name] for name in attack.clients}))


def drawn(attack: Attack, population: Population, seed: int) -> tuple[int, ...]:
    """A share of all, from every planted group alike; who captures comes from the other groups."""
    n, group = len(population), population.group
    order = torch.randperm(n, generator=stream(seed, "attackers"))
    if group is not None:
        if attack.kind == "cluster-capture":
            order = order[group[order] != attack.target]
        order = order[turns(group[order]).argsort(stable=True)]
    return tuple(sorted(order[: int(attack.share * n + 0.5)].tolist()))


def turns(group: Tensor) -> Tensor:
    """How many of its group come before each: (n,) -> (n,).

    >>> turns(torch.tensor([1, 1, 0, 1, 0])).tolist()
    [0, 1, 0, 2, 1]
    """
    seen: Counter[int] = Counter()
    found = []
    for g in group.tolist():
        found.append(seen[g])
        seen[g] += 1
    return torch.tensor(found, dtype=torch.long)
