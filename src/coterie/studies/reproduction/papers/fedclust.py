"""Islam et al.: FedClust, ICPP 2024."""

from __future__ import annotations

from collections.abc import Mapping

from coterie.core.units import count
from coterie.studies.reproduction.claims import above, at_most, best
from coterie.studies.reproduction.table import Claim, Setting, Table

PAPER = "FedClust, ICPP 2024"
ACCURACY, TUNED = "accuracy_percent", "accuracy_percent after 10 local epochs"
METHODS = {
    "Local": "local",
    "FedAvg": "fedavg:train.momentum=0.9",
    "FedProx": "fedprox:train.momentum=0.9",
    "FedNova": "fednova:train.momentum=0.9",
    "LG": "lg-fedavg",
    "PerFedAvg": "perfedavg:train.lr=0.001",
    "CFL": "cfl",
    "IFCA": "ifca",
    "PACFL": "pacfl",
    "FedClust": "fedclust",
}
BESIDE = ("fedclust:clusters=0", "kin")
GLOBAL = ["FedAvg", "FedProx", "FedNova"]
NOT_HERE = {
    "CIFAR-100": "only the first 20 classes were at hand, and ResNet-9 is beyond these runs",
    "SVHN": "only 2,000 of its images were at hand",
}
CIFAR = {"data.source": "cifar10", "fedclust.clusters": 2}
SKEW20 = {"partition.kind": "label-skew", "partition.share": 0.2}
SKEW30 = {"partition.kind": "label-skew", "partition.share": 0.3}
DIR = {"partition.kind": "noniid-labeldir:0.1"}


def settings(name: str, **given: object) -> tuple[Setting, ...]:
    """A setting on the two data sets that can be had."""
    return (
        Setting("FMNIST", name, "fashion-mnist", given),
        Setting("CIFAR-10", name, "cifar10", {**given, **CIFAR}),
    )


def cuts() -> tuple[Setting, ...]:
    """Figure 4's setting; how many clusters there are is each label's own."""
    return (
        Setting("FMNIST", "label skew 20%", "fashion-mnist", SKEW20),
        Setting("CIFAR-10", "label skew 20%", "cifar10", {**SKEW20, "data.source": "cifar10"}),
    )


def accuracies(number: int, name: str, given: Mapping[str, object]) -> Table:
    """One of the three tables of accuracies."""
    return Table(
        f"fedclust-{number}",
        PAPER,
        f"Accuracy, {name}",
        "fedclust-1",
        settings(name, **given),
        METHODS,
        BESIDE,
        {ACCURACY: "final"},
        {ACCURACY: (TUNED, "tuned")},
        (
            Claim("FedClust is best", best("FedClust", [*METHODS], ACCURACY)),
            Claim(
                "FedClust is best when every client trains 10 epochs before its test",
                best("FedClust", [*METHODS], TUNED),
            ),
            Claim(
                "Local training is better than every global method",
                above("Local", GLOBAL, ACCURACY),
            ),
            Claim(
                "FedClust is at least 10 points above FedAvg",
                above("FedClust", ["FedAvg"], ACCURACY, 10.0),
            ),
        ),
        NOT_HERE,
    )


DRAWN = "rounds_to_target of the clients' own networks, estimated"
CUTS = {count(k, "cluster"): f"fedclust:clusters={k}" for k in (1, 2, 3, 4, 6, 10, 20, 40, 100)}
SENT = {m: label for m, label in METHODS.items() if m != "Local"}
TABLES = (
    accuracies(1, "label skew 20%", SKEW20),
    accuracies(2, "label skew 30%", SKEW30),
    accuracies(3, "Dir(0.1)", DIR),
    Table(
        "fedclust-4",
        PAPER,
        "Rounds to a target accuracy, label skew 20%",
        "fedclust-1",
        settings("label skew 20%", **SKEW20),
        SENT,
        BESIDE,
        {"rounds_to_target": "rounds_to_target"},
        {"rounds_to_target": (DRAWN, "rounds_drawn_to_target")},
        claims=(
            Claim(
                "FedClust needs the fewest rounds",
                best("FedClust", [*SENT], "rounds_to_target", least=True),
            ),
            Claim("FedClust needs at most 20", at_most("FedClust", "rounds_to_target", 20)),
        ),
        absent=NOT_HERE,
    ),
    Table(
        "fedclust-5",
        PAPER,
        "Megabits of a client to a target accuracy, label skew 30%",
        "fedclust-1",
        settings("label skew 30%", **SKEW30),
        SENT,
        BESIDE,
        {"comm_megabits_per_client": "megabits_to_target"},
        claims=(
            Claim(
                "FedClust needs the least of all but LG-FedAvg",
                best(
                    "FedClust",
                    [m for m in SENT if m != "LG"],
                    "comm_megabits_per_client",
                    least=True,
                ),
            ),
        ),
        absent=NOT_HERE,
    ),
    Table(
        "fedclust-6",
        PAPER,
        "Accuracy of 20 newcomers after five epochs",
        "fedclust-1",
        settings(
            "label skew 20%;20 unseen clients",
            **SKEW20,
            **{"newcomers.share": 0.2, "train.rounds": 50, "evaluate.tuned": 0},
        ),
        {m: label for m, label in METHODS.items() if m != "CFL"},
        BESIDE,
        {"accuracy_percent": "newcomers_adapted"},
        claims=(
            Claim(
                "FedClust is best for newcomers",
                best("FedClust", [m for m in METHODS if m != "CFL"], "accuracy_percent"),
            ),
        ),
        absent=NOT_HERE,
        notes="CIFAR-100 of IFCA, PACFL and FedClust has values of other columns of the paper",
    ),
    Table(
        "fedclust-fig4",
        PAPER,
        "Accuracy against the number of clusters, label skew 20%",
        "fedclust-fig4",
        cuts(),
        CUTS,
        (),
        {ACCURACY: "final"},
        {ACCURACY: (TUNED, "tuned")},
        (
            Claim(
                "Two clusters are best on CIFAR-10",
                best("2 clusters", [*CUTS], ACCURACY, where="CIFAR-10"),
            ),
            Claim(
                "Four clusters are best on Fashion-MNIST",
                best("4 clusters", [*CUTS], ACCURACY, where="FMNIST"),
            ),
            Claim(
                "Four clusters are best on Fashion-MNIST after 10 local epochs",
                best("4 clusters", [*CUTS], TUNED, where="FMNIST"),
            ),
        ),
        notes="a picture: the paper prints no number of it",
    ),
)
