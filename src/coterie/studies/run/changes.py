"""What changes about the clients while rounds go by: who has come, and whose samples are whose."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from coterie.core.events import Listener
from coterie.core.types import State
from coterie.data.population import Population
from coterie.runs.history import History


def shown(state: State, population: Population) -> State:
    """A state as records have it: who has not come yet holds nothing."""
    away = population.away(state.round)
    return state if away is None else replace(state, assign=state.assign.masked_fill(away, -1))


def waiting(state: State, population: Population) -> Tensor:
    """Those who are there and hold no model yet."""
    away, who = population.away(state.round), state.unplaced
    return who if away is None else who[~away[who]]


def tell_changes(population: Population, round: int, say: Listener) -> None:
    """Tell who has come since the round before, and how far those are who drift."""
    if round < 1:
        return
    names, arrives, course = population.names, population.arrives, population.course
    if arrives is not None and len(new := (arrives == round).nonzero().flatten()):
        who = [names[i] for i in new.tolist()]
        say({"event": "arrived", "round": round, "clients": who})
    if (phase := course.phase(round)) != course.phase(round - 1):
        say({"event": "drift", "round": round, "pattern": course.pattern, "share": phase})


def recoveries(history: History, population: Population) -> list[int | None]:
    """For each round in which groups changed, how many more it took until every client was in the
    right cluster again; None: not before they changed again, or not yet."""
    right = history.series("clusters_correct", "clusters")
    turns = population.course.turns(max(right, default=0))
    found: list[int | None] = []
    for at, end in zip(turns, [*turns[1:], torch.inf], strict=False):
        all_right = (t - at for t, v in right.items() if at < t <= end and v == len(population))
        found.append(next(all_right, None))
    return found
