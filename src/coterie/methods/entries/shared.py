"""Training alone, and one model for everybody."""

from __future__ import annotations

from coterie.methods.entries import Entry

SHARED = (
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
        noise="the gradient of each sample",
    ),
    Entry(
        "fedprox",
        "fedavg:FedProx",
        "Li et al., MLSys 2020",
        "global",
        "FedAvg with a pull towards the global model during local training",
        noise="the gradient of each sample",
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
)
