"""Accuracy by how many samples of a class a client trains on, where it was measured by class."""

from __future__ import annotations

from coterie.data.population import Population
from coterie.runs.by_class import SHOTS, counted
from coterie.runs.history import History


def by_shots(
    history: History,
    population: Population,
    round: int,
    stage: str,
    edges: tuple[float, float] = SHOTS,
) -> dict[str, float] | None:
    """Accuracy after a round on the classes that a client has few, medium and many samples of.

    None if `per_class_accuracy` was not among the metrics.
    """
    found = counted(history, population.classes, round, stage)
    if found is None:
        return None
    clients = population.at(round)
    counts = dict(zip(clients.names, clients.label_counts().tolist(), strict=True))
    return found.by_shots(counts, edges)
