"""What only the clients' data can tell of a finished run: their labels, and models on others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from coterie import engines
from coterie.report.run_data import Insight
from coterie.runs.reading import Floats
from coterie.tasks.score import Score

if TYPE_CHECKING:
    from coterie.studies.result import Result

TESTS = 2_000  # at most so many tests of one model on one client


def insight(result: Result) -> Insight | None:
    """What the clients' data tell; None where the data are on the clients' own machines."""
    clients = result.population.at(result.state.round)
    counts = clients.label_counts()
    if not counts.any():  # a population that cannot see its labels counts none
        return None
    held = result.state.assign[result.state.placed]
    clusters = held.unique().tolist()
    personal = len(clusters) == len(held) > 1
    cross = None if personal else cross_test(result, clusters)
    return Insight(clients.class_names, counts.numpy(), cross, tuple(clusters))


def cross_test(result: Result, clusters: Sequence[int]) -> Floats:
    """(k, k) mean accuracy: every cluster's clients (row) with every cluster's model (column).

    One model alone is not tested again: it has no other to be compared with.
    """
    table: Floats = np.full((len(clusters), len(clusters)), np.nan)
    if len(clusters) < 2:
        return table
    state = result.state
    # The run's own engine has let its workers go; a few tests are not worth starting them again.
    fed = engines.build("serial", result.population, result.fed.layout, result.fed.seed)
    fed.restore(result.fed.memories())
    most = max(1, TESTS // len(clusters) ** 2)  # clients of each cluster
    members = {c: (state.assign == c).nonzero().flatten()[:most] for c in clusters}
    some = torch.cat(list(members.values())).sort().values
    task = Score(private=result.method.score.private)
    for j, model in enumerate(clusters):
        lent = state.reassign(some, torch.full_like(some, model))
        replies = fed.at(state.round, "evaluate").ask(some, task, lent)
        accuracy = replies.values[:, 0, 0]
        for i, cluster in enumerate(clusters):
            theirs = accuracy[torch.isin(replies.clients, members[cluster])]
            table[i, j] = float(theirs[~theirs.isnan()].mean())
    return table
