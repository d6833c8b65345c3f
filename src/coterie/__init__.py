"""coterie: clustered and personalised federated learning.

    import coterie as ct

    clients = ct.partition("digits", "rotation", clients=20)
    result = ct.fit(ct.FedAvg(), clients, "cnn-s", rounds=20)
    result.accuracy.mean(), result.clusters

Names are loaded when they are first used, so that importing coterie costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "load": "coterie.data.load",
    "Data": "coterie.data.dataset",
    "partition": "coterie.data.population",
    "Population": "coterie.data.population",
    "Client": "coterie.client",
    "Solver": "coterie.solver",
    "Score": "coterie.score",
    "State": "coterie.types",
    "Reply": "coterie.types",
    "Replies": "coterie.types",
    "Task": "coterie.types",
    "Federation": "coterie.types",
    "Method": "coterie.types",
    "Layout": "coterie.layout",
    "run": "coterie.loop",
    "evaluate": "coterie.loop",
    "fit": "coterie.training",
    "Result": "coterie.result",
    "resume": "coterie.experiment",
    "Local": "coterie.methods.local",
    "FedAvg": "coterie.methods.fedavg",
    "FedAvgFT": "coterie.methods.fedavg",
    "FedProx": "coterie.methods.fedavg",
} | {
    kind: "coterie.data.kinds"
    for kind in (
        "IID Dirichlet LabelSkew Shards Classes QuantityDirichlet LabelGroups LabelSets "
        "ClusteredDirichlet Natural Rotation Permutation Quantity"
    ).split()
}

__all__ = ["__version__", *_HOME]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'coterie' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
