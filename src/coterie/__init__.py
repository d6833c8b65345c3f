"""coterie: clustered and personalised federated learning.

    import coterie as ct

    clients = ct.partition("digits", "rotation", clients=20)
    result = ct.fit(ct.Kin(), clients, "cnn-s", rounds=20)
    result.accuracy.mean(), result.clusters

Names are loaded when they are first used, so that importing coterie costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from coterie.core.version import __version__
from coterie.methods import METHODS

_MODULES = {
    "coterie.data.load": ["load"],
    "coterie.data.dataset": ["Data"],
    "coterie.data.population": ["Population", "partition"],
    "coterie.data.kinds": [
        *("IID", "Dirichlet", "LabelSkew", "Shards", "Classes", "QuantityDirichlet"),
        *("LabelGroups", "LabelSets", "ClusteredDirichlet", "Natural"),
        *("Rotation", "Permutation", "Quantity", "Drift"),
    ],
    "coterie.core.client": ["Client"],
    "coterie.core.layout": ["Layout"],
    "coterie.core.types": ["Federation", "Method", "Replies", "Reply", "State", "Task"],
    "coterie.tasks.optimiser": ["SGD"],
    "coterie.tasks.solver": ["Solver"],
    "coterie.tasks.score": ["Score"],
    "coterie.core.loop": ["evaluate", "run"],
    "coterie.studies.fit": ["fit"],
    "coterie.studies.result": ["Result"],
    "coterie.studies.placement": ["Placement"],
    "coterie.studies.inspection": ["Inspection", "inspect"],
    "coterie.studies.experiment": ["open_run", "resume"],
    "coterie.studies.comparison": ["Comparison"],
    "coterie.studies.comparison.running": ["compare"],
    "coterie.studies.newcomers": ["Joined", "join"],
    "coterie.trackers": ["track"],
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}
_HOME |= {e.cls: f"coterie.methods.{e.path.split(':')[0]}" for e in METHODS.values()}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'coterie' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
