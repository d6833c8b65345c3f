"""The table of methods. Reading it imports none of them, so a list costs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

from coterie.errors import ConfigError

if TYPE_CHECKING:
    from coterie.types import Method


@dataclass(frozen=True)
class Entry:
    """What is known of a method without loading it."""

    name: str
    path: str  # module of this package : class
    paper: str
    family: str  # alone | global | clustered | personalised
    uploads: str  # what leaves a client
    summary: str
    public: int = 0  # samples per class that the server must hold, unless the user says otherwise

    @property
    def cls(self) -> str:
        """The name of its class."""
        return self.path.split(":")[1]


METHODS: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            "local",
            "local:Local",
            "the baseline every paper reports",
            "alone",
            "nothing",
            "each client trains by itself and never communicates",
        ),
        Entry(
            "fedavg",
            "fedavg:FedAvg",
            "McMahan et al., AISTATS 2017",
            "global",
            "weights every round",
            "one model, the average of what the clients trained",
        ),
        Entry(
            "fedavg-ft",
            "fedavg:FedAvgFT",
            "McMahan et al., AISTATS 2017, with local fine-tuning",
            "personalised",
            "weights every round",
            "FedAvg, and each client tunes the last layer before it uses the model",
        ),
        Entry(
            "fedprox",
            "fedavg:FedProx",
            "Li et al., MLSys 2020",
            "global",
            "weights every round",
            "FedAvg with a pull towards the global model during local training",
        ),
        Entry(
            "autocfl",
            "autocfl:AutoCFL",
            "Gong et al., IEEE Transactions on Big Data 2024",
            "clustered",
            "weights and training loss every round",
            "evens out local epochs, then clients vote on who belongs together",
        ),
        Entry(
            "cflgt",
            "cflgt:CFLGT",
            "Liu, Wang, Yu, Kant: Clustered FL with Gradient Trajectory",
            "clustered",
            "weights every round; once, two numbers per class (which tell the classes it holds)",
            "groups clients by the forces their data exert on the classifier",
        ),
        Entry(
            "feddsmic",
            "feddsmic:FedDSMIC",
            "Li et al., ICA3PP 2022",
            "clustered",
            "weights every round (the server holds samples of its own)",
            "groups by predictions on samples the server holds; centres learned by MAML",
            public=1,
        ),
        Entry(
            "fedds",
            "feddsmic:FedDS",
            "Li et al., ICA3PP 2022, clustering alone",
            "clustered",
            "weights every round (the server holds samples of its own)",
            "FedDSMIC without the meta step",
            public=1,
        ),
        Entry(
            "dapfl",
            "dapfl:DAPFL",
            "Yang et al. 2024",
            "personalised",
            "weights every round; once, the number of samples of each class",
            "each client's model is pulled to a mixture of those that have what it lacks",
        ),
        Entry(
            "fedclust",
            "fedclust:FedClust",
            "Islam et al., ICPP 2024",
            "clustered",
            "weights every round; once, the last layer's weights and bias",
            "groups clients once by the last layer after a short training",
        ),
    )
}


def find(name: str) -> type[Method]:
    """The class of a method: one of METHODS, or your own as "package.module:Class"."""
    if name in METHODS:
        module, cls = METHODS[name].path.split(":")
        return _class(f"coterie.methods.{module}", cls)
    if ":" in name:
        module, cls = name.split(":", 1)
        try:
            return _class(module, cls)
        except (ImportError, AttributeError) as cause:
            raise ConfigError(
                f"method {name!r} cannot be imported: {cause}",
                code="C040",
                fix='write it as "package.module:Class", importable from where you run coterie',
            ) from cause
    near = get_close_matches(name, METHODS, n=1)
    raise ConfigError(
        f"unknown method {name!r}",
        code="C041",
        fix=f"use {near[0]!r}" if near else f"use one of {', '.join(METHODS)}",
    )


def _class(module: str, cls: str) -> Any:
    return getattr(import_module(module), cls)
