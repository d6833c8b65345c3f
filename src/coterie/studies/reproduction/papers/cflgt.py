"""Liu, Wang, Yu, Kant: Clustered Federated Learning with Gradient Trajectory (CFLGT)."""

from __future__ import annotations

from typing import Any

from coterie.studies.reproduction.claims import above, best, near
from coterie.studies.reproduction.table import Claim, Setting, Table

PAPER = "CFLGT"
ACCURACY = "accuracy_percent_mean_last20"
METHODS = {
    "Fedavg": "fedavg",
    "Fedavg+FT": "fedavg-ft",
    "Fedprox": "fedprox",
    "Fedsem": "fedsem",
    "FL+HC": "flhc",
    "IFCA": "ifca",
    "CFLGT": "cflgt",
}
SCENARIOS: dict[str, dict[str, Any]] = {
    "scenario1": {"partition.sets": 5, "partition.labels": 2},
    "scenario2": {"partition.sets": 5, "partition.labels": 5},
    "scenario3": {
        "partition.sets": 20,
        "partition.labels": 3,
        "fedsem.clusters": 20,
        "flhc.clusters": 20,
        "ifca.clusters": 20,
    },
}
CIFAR = {"data.source": "cifar10", "model.name": "lenet5", "train.rounds": 225}
SVHN = {"SVHN": "only 2,000 of its images were at hand"}
CLUSTERED = ["Fedsem", "FL+HC", "IFCA", "CFLGT"]

TABLES = (
    Table(
        "cflgt-1",
        PAPER,
        "Accuracy in three scenarios",
        "cflgt-1",
        (
            *(Setting("FMNIST", name, "fashion-mnist", s) for name, s in SCENARIOS.items()),
            *(Setting("CIFAR10", name, "cifar10", {**s, **CIFAR}) for name, s in SCENARIOS.items()),
        ),
        METHODS,
        ("cflgt:preference=silhouette", "kin", "oracle"),
        {ACCURACY: "last_20"},
        claims=(
            Claim("CFLGT is best in every scenario", best("CFLGT", [*METHODS], ACCURACY)),
            Claim(
                "CFLGT is best of the clustered methods in every scenario",
                best("CFLGT", CLUSTERED, ACCURACY),
            ),
            Claim(
                "CFLGT is at least five points above FedAvg in every scenario",
                above("CFLGT", ["Fedavg"], ACCURACY, 5.0),
            ),
            Claim(
                "FL+HC, told the right number of clusters, is within two points of CFLGT",
                near("CFLGT", "FL+HC", ACCURACY, 2.0),
            ),
        ),
        absent=SVHN,
    ),
    Table(
        "cflgt-2",
        PAPER,
        "A wrong number of clusters, scenario 3",
        "cflgt-2",
        (
            Setting(
                "FMNIST",
                "scenario3",
                "fashion-mnist",
                {"data.source": "fashion-mnist", "model.name": "dnn2", "train.rounds": 125},
                "Fashion-MNIST, which the paper does not have here",
            ),
            Setting("CIFAR10", "scenario3", "cifar10"),
        ),
        {
            "FL+HC(10)": "flhc:clusters=10",
            "FL+HC(20)": "flhc:clusters=20",
            "FL+HC(30)": "flhc:clusters=30",
            "CFLGT": "cflgt",
        },
        ("kin", "oracle"),
        {ACCURACY: "last_20"},
        claims=(
            Claim(
                "FL+HC loses with 10 or 30 clusters where there are 20",
                best("FL+HC(20)", ["FL+HC(10)", "FL+HC(20)", "FL+HC(30)"], ACCURACY),
            ),
            Claim(
                "CFLGT, which is told no number, is best",
                best("CFLGT", ["FL+HC(10)", "FL+HC(20)", "FL+HC(30)", "CFLGT"], ACCURACY),
            ),
        ),
    ),
    Table(
        "cflgt-inline",
        PAPER,
        "Coefficients of variation, bytes, and the limit of the Hopkins statistic",
        absent={"": "constants of the method, and one figure whose setting is not stated"},
    ),
)
