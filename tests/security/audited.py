"""A small federation of real digits that is attacked, shared by the tests of the privacy rows."""

from __future__ import annotations

from functools import cache

from coterie.core.layout import Layout
from coterie.data.population import Population, partition
from coterie.studies.audits.auditing import Auditor
from coterie.studies.run.training import build_layout


@cache
def people(clients: int = 6) -> Population:
    return partition("digits", "dirichlet:0.5", clients=clients, seed=0)


@cache
def small(network: str = "cnn-s") -> Layout:
    return build_layout(network, people().shape, people().classes)


@cache
def auditor() -> Auditor:
    return Auditor(people(), small(), steps=200)
