"""Attacks on data: clients that train on other samples than their own."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cached_property

import torch

from coterie.attacks.attackers import Attackers
from coterie.core.client import Client
from coterie.core.rng import stream
from coterie.data.population import Population


class Poisoned(Population):
    """A population of whom some train on what an attack makes of their samples, from its start.

    Their test samples stay as they are, and all that is known of the clients: sizes and groups.
    """

    def __init__(self, honest: Population, them: Attackers, seed: int) -> None:
        vars(self).update({k: v for k, v in vars(honest).items() if k != "key"})
        self.honest, self.them, self.seed = honest, them, seed
        self.attack, self.who = them
        self._made_hostile: dict[int, Client] = {}
        self._now: Poisoned | None = None

    def client(self, i: int) -> Client:
        """The client of a place: of a hostile one, what the attack makes of it."""
        if i not in self.who:
            return self.honest[i]
        if i not in self._made_hostile:
            self._made_hostile[i] = self.poisoned(i)
        return self._made_hostile[i]

    def at(self, round: int) -> Population:
        """The population as it is after so many rounds of training."""
        honest, since = self.honest.at(round), self.attack.start - 1
        # What shall be in force from the first round on is so before it, when clients are grouped.
        if self.attack.kind == "label-flip" and since and round < since:
            return honest
        if honest is self.honest:
            return self
        if self._now is None or self._now.honest is not honest:
            self._now = Poisoned(honest, self.them, self.seed)
        return self._now

    @cached_property
    def key(self) -> str:
        """SHA-256 of all that the clients' tensors follow from."""
        text = f"{self.honest.key} {self.them} {self.seed}"
        return hashlib.sha256(text.encode()).hexdigest()

    def poisoned(self, i: int) -> Client:
        """A hostile client."""
        client, rng = self.honest[i], stream(self.seed, "poison", self.names[i])
        if self.attack.kind == "label-flip":
            some = torch.rand(len(client), generator=rng) < self.attack.force
            return replace(client, y=torch.where(some, self.classes - 1 - client.y, client.y))
        other = self.honest[self.imitated(i)]
        draw = torch.randint(len(other), (len(client),), generator=rng)
        return replace(client, x=other.x[draw], y=other.y[draw])

    def imitated(self, i: int) -> int:
        """The honest client of the target group whose samples a hostile one has got hold of."""
        group = self.group
        assert group is not None  # attackers() has seen to it
        members: list[int] = (group == self.attack.target).nonzero().flatten().tolist()
        honest = [j for j in members if j not in self.who] or members
        return honest[self.who.index(i) % len(honest)]
