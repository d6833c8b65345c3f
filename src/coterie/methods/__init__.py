"""The table of methods. Reading it imports none of them, so a list costs nothing.

One file is one paper, or one family of methods that share a body. `find` loads a method.

May touch: core, words, tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from coterie.core.errors import ConfigError
from coterie.core.suggest import similar

if TYPE_CHECKING:
    from coterie.core.types import Method


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
            "kin",
            "kin:Kin",
            "ours, from what the five papers teach",
            "clustered",
            "weights every round; once, the last layer's weights and bias",
            "groups by the direction of the first update, trains apart, follows drift",
        ),
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
            "fednova",
            "fednova:FedNova",
            "Wang et al., NeurIPS 2020",
            "global",
            "weights and the number of local steps every round",
            "FedAvg in which clients that make more steps do not count for more",
        ),
        Entry(
            "scaffold",
            "scaffold:SCAFFOLD",
            "Karimireddy et al., ICML 2020",
            "global",
            "weights and the change of a control variate every round (twice the size of FedAvg)",
            "control variates correct the drift of local training",
        ),
        Entry(
            "creff",
            "creff:CReFF",
            "Shang et al., IJCAI 2022",
            "global",
            "weights and a gradient for each class every round (which tells the classes it holds)",
            "FedAvg whose classifier is re-trained on features that the server makes up",
        ),
        Entry(
            "perfedavg",
            "perfedavg:PerFedAvg",
            "Fallah, Mokhtari, Ozdaglar, NeurIPS 2020",
            "personalised",
            "weights every round",
            "a model from which one local step leads to a good one",
        ),
        Entry(
            "ditto",
            "ditto:Ditto",
            "Li, Hu, Beirami, Smith, ICML 2021",
            "personalised",
            "weights of the global model every round",
            "FedAvg, and each client keeps a model of its own that stays near it",
        ),
        Entry(
            "fedrep",
            "partial:FedRep",
            "Collins et al., ICML 2021",
            "personalised",
            "weights of the body every round",
            "a common body, and a head for each client that never leaves it",
        ),
        Entry(
            "lg-fedavg",
            "partial:LGFedAvg",
            "Liang et al. 2020",
            "personalised",
            "weights of the upper layers every round",
            "each client keeps its lower layers, the upper ones are averaged",
        ),
        Entry(
            "fedamp",
            "fedamp:FedAMP",
            "Huang et al., AAAI 2021",
            "personalised",
            "weights every round",
            "each client is pulled to a mixture of the models nearest to its own",
        ),
        Entry(
            "heurfedamp",
            "fedamp:HeurFedAMP",
            "Huang et al., AAAI 2021, for deep networks",
            "personalised",
            "weights every round",
            "FedAMP with attention by the angle between models",
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
        Entry(
            "ifca",
            "ifca:IFCA",
            "Ghosh et al., NeurIPS 2020",
            "clustered",
            "weights and the chosen cluster every round (k models come down)",
            "each client trains the one of k models that fits its training data best",
        ),
        Entry(
            "cfl",
            "cfl:CFL",
            "Sattler, Müller, Samek, IEEE TNNLS 2021",
            "clustered",
            "weights every round, from everybody",
            "splits a cluster in two when it has settled but its clients still pull apart",
        ),
        Entry(
            "flhc",
            "flhc:FLHC",
            "Briggs, Fan, Andras, IJCNN 2020",
            "clustered",
            "weights every round (and training loss before the clustering, with adjusted epochs)",
            "FedAvg for a few rounds, then hierarchical clustering of everybody's model",
        ),
        Entry(
            "fedsem",
            "fedsem:FedSEM",
            "Long et al., World Wide Web 2023",
            "clustered",
            "weights every round",
            "k-means on the clients' models, a step of it in every round",
        ),
        Entry(
            "pacfl",
            "pacfl:PACFL",
            "Vahidian et al., AAAI 2023",
            "clustered",
            "weights every round; once, p singular vectors of its data (which look like samples)",
            "groups clients by the angles between their data subspaces, before training",
        ),
        Entry(
            "fedsoft",
            "fedsoft:FedSoft",
            "Ruan, Joe-Wong, AAAI 2022",
            "personalised",
            "weights every round; every tau rounds, the share of its samples each centre fits best",
            "personal models pulled to several centres, each by how many samples it fits",
        ),
        Entry(
            "fedpfa",
            "fedpfa:FedPFA",
            "Liu, Guo, Chen, WWW 2021",
            "clustered",
            "weights every round; once, how often each channel of a layer is silent on its data",
            "groups clients by the sparsity of the network's features, after pre-training",
        ),
    )
}


def public_samples(name: str) -> int:
    """Samples of each class that the server of a method must hold; 0 for a method of your own.

    >>> public_samples("feddsmic"), public_samples("fedavg"), public_samples("mine:Method")
    (1, 0, 0)
    """
    return METHODS[name].public if name in METHODS else 0


def find(name: str) -> type[Method]:
    """The class of a method: one of METHODS, or your own as "package.module:Class"."""
    if name in METHODS:
        module, cls = METHODS[name].path.split(":")
        return load(f"coterie.methods.{module}", cls)
    if ":" in name:
        module, cls = name.split(":", 1)
        try:
            return load(module, cls)
        except (ImportError, AttributeError) as cause:
            raise ConfigError(
                f"method {name!r} cannot be imported: {cause}",
                code="C040",
                fix='write it as "package.module:Class", importable from where you run coterie',
            ) from cause
    raise ConfigError(
        f"unknown method {name!r}",
        code="C041",
        fix=similar(name, METHODS) or f"use one of {', '.join(METHODS)}",
    )


def load(module: str, cls: str) -> type[Method]:
    """A class by its address."""
    found: type[Method] = getattr(import_module(module), cls)
    return found
