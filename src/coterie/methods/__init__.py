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
    summary: str
    uploads: str = "weights every round"  # what leaves a client
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
            "groups by the direction of the first update, trains apart, follows drift",
            "weights every round; once, the last layer's weights and bias",
        ),
        Entry(
            "local",
            "local:Local",
            "the baseline every paper reports",
            "alone",
            "each client trains by itself and never communicates",
            "nothing",
        ),
        Entry(
            "fedavg",
            "fedavg:FedAvg",
            "McMahan et al., AISTATS 2017",
            "global",
            "one model, the average of what the clients trained",
        ),
        Entry(
            "fedavg-ft",
            "fedavg:FedAvgFT",
            "McMahan et al., AISTATS 2017, with local fine-tuning",
            "personalised",
            "FedAvg, and each client tunes the last layer before it uses the model",
        ),
        Entry(
            "fedprox",
            "fedavg:FedProx",
            "Li et al., MLSys 2020",
            "global",
            "FedAvg with a pull towards the global model during local training",
        ),
        Entry(
            "fednova",
            "fednova:FedNova",
            "Wang et al., NeurIPS 2020",
            "global",
            "FedAvg in which clients that make more steps do not count for more",
            "weights and the number of local steps every round",
        ),
        Entry(
            "scaffold",
            "scaffold:SCAFFOLD",
            "Karimireddy et al., ICML 2020",
            "global",
            "control variates correct the drift of local training",
            "weights and the change of a control variate every round (twice the size of FedAvg)",
        ),
        Entry(
            "creff",
            "creff:CReFF",
            "Shang et al., IJCAI 2022",
            "global",
            "FedAvg whose classifier is re-trained on features that the server makes up",
            "weights and a gradient for each class every round (which tells the classes it holds)",
        ),
        Entry(
            "perfedavg",
            "perfedavg:PerFedAvg",
            "Fallah, Mokhtari, Ozdaglar, NeurIPS 2020",
            "personalised",
            "a model from which one local step leads to a good one",
        ),
        Entry(
            "ditto",
            "ditto:Ditto",
            "Li, Hu, Beirami, Smith, ICML 2021",
            "personalised",
            "FedAvg, and each client keeps a model of its own that stays near it",
            "weights of the global model every round",
        ),
        Entry(
            "apfl",
            "apfl:APFL",
            "Deng, Kamani, Mahdavi 2020",
            "personalised",
            "each client mixes the global model with its own, and learns how much of each",
            "weights of the global model every round",
        ),
        Entry(
            "pfedme",
            "pfedme:PFedMe",
            "Dinh, Tran, Nguyen, NeurIPS 2020",
            "personalised",
            "each client's model solves its own problem near a common one",
            "weights of the common model every round",
        ),
        Entry(
            "fedrep",
            "partial:FedRep",
            "Collins et al., ICML 2021",
            "personalised",
            "a common body, and a head for each client that never leaves it",
            "weights of the body every round",
        ),
        Entry(
            "lg-fedavg",
            "partial:LGFedAvg",
            "Liang et al. 2020",
            "personalised",
            "each client keeps its lower layers, the upper ones are averaged",
            "weights of the upper layers every round",
        ),
        Entry(
            "fedper",
            "partial:FedPer",
            "Arivazhagan et al. 2019",
            "personalised",
            "a common body, and a head for each client; both learn together",
            "weights of the body every round",
        ),
        Entry(
            "fedbn",
            "partial:FedBN",
            "Li et al., ICLR 2021",
            "personalised",
            "FedAvg on all but the normalisation layers, which each client keeps",
            "weights of all other layers every round",
        ),
        Entry(
            "fedbabu",
            "fedbabu:FedBABU",
            "Oh, Kim, Yun, ICLR 2022",
            "personalised",
            "a common body learned under a random head, and each client tunes the head before use",
            "weights of the body every round",
        ),
        Entry(
            "fedamp",
            "fedamp:FedAMP",
            "Huang et al., AAAI 2021",
            "personalised",
            "each client is pulled to a mixture of the models nearest to its own",
        ),
        Entry(
            "heurfedamp",
            "fedamp:HeurFedAMP",
            "Huang et al., AAAI 2021, for deep networks",
            "personalised",
            "FedAMP with attention by the angle between models",
        ),
        Entry(
            "autocfl",
            "autocfl:AutoCFL",
            "Gong et al., IEEE Transactions on Big Data 2024",
            "clustered",
            "evens out local epochs, then clients vote on who belongs together",
            "weights and training loss every round",
        ),
        Entry(
            "cflgt",
            "cflgt:CFLGT",
            "Liu, Wang, Yu, Kant: Clustered FL with Gradient Trajectory",
            "clustered",
            "groups clients by the forces their data exert on the classifier",
            "weights every round; once, two numbers per class (which tell the classes it holds)",
        ),
        Entry(
            "feddsmic",
            "feddsmic:FedDSMIC",
            "Li et al., ICA3PP 2022",
            "clustered",
            "groups by predictions on samples the server holds; centres learned by MAML",
            "weights every round (the server holds samples of its own)",
            public=1,
        ),
        Entry(
            "fedds",
            "feddsmic:FedDS",
            "Li et al., ICA3PP 2022, clustering alone",
            "clustered",
            "FedDSMIC without the meta step",
            "weights every round (the server holds samples of its own)",
            public=1,
        ),
        Entry(
            "dapfl",
            "dapfl:DAPFL",
            "Yang et al. 2024",
            "personalised",
            "each client's model is pulled to a mixture of those that have what it lacks",
            "weights every round; once, the number of samples of each class",
        ),
        Entry(
            "fedclust",
            "fedclust:FedClust",
            "Islam et al., ICPP 2024",
            "clustered",
            "groups clients once by the last layer after a short training",
            "weights every round; once, the last layer's weights and bias",
        ),
        Entry(
            "oracle",
            "oracle:Oracle",
            "the ceiling of clustering, for simulations",
            "clustered",
            "FedAvg inside the planted groups, which it is told",
        ),
        Entry(
            "ifca",
            "ifca:IFCA",
            "Ghosh et al., NeurIPS 2020",
            "clustered",
            "each client trains the one of k models that fits its training data best",
            "weights and the chosen cluster every round (k models come down)",
        ),
        Entry(
            "cfl",
            "cfl:CFL",
            "Sattler, Müller, Samek, IEEE TNNLS 2021",
            "clustered",
            "splits a cluster in two when it has settled but its clients still pull apart",
            "weights every round, from everybody",
        ),
        Entry(
            "flhc",
            "flhc:FLHC",
            "Briggs, Fan, Andras, IJCNN 2020",
            "clustered",
            "FedAvg for a few rounds, then hierarchical clustering of everybody's model",
            "weights every round (and training loss before the clustering, with adjusted epochs)",
        ),
        Entry(
            "fedsem",
            "fedsem:FedSEM",
            "Long et al., World Wide Web 2023",
            "clustered",
            "k-means on the clients' models, a step of it in every round",
        ),
        Entry(
            "pacfl",
            "pacfl:PACFL",
            "Vahidian et al., AAAI 2023",
            "clustered",
            "groups clients by the angles between their data subspaces, before training",
            "weights every round; once, p singular vectors of its data (which look like samples)",
        ),
        Entry(
            "fedsoft",
            "fedsoft:FedSoft",
            "Ruan, Joe-Wong, AAAI 2022",
            "personalised",
            "personal models pulled to several centres, each by how many samples it fits",
            "weights every round; every tau rounds, the share of its samples each centre fits best",
        ),
        Entry(
            "fedpfa",
            "fedpfa:FedPFA",
            "Liu, Guo, Chen, WWW 2021",
            "clustered",
            "groups clients by the sparsity of the network's features, after pre-training",
            "weights every round; once, how often each channel of a layer is silent on its data",
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
                fix='write it as "package.module:Class", of a module that is installed or lies in '
                "the folder where you are",
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
