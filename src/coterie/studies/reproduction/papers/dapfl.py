"""Yang et al.: DA-PFL, 2024."""

from __future__ import annotations

from typing import Any

from coterie.studies.reproduction.claims import above, best
from coterie.studies.reproduction.table import Claim, Setting, Table

PAPER = "DA-PFL, 2024"
ACCURACY = "accuracy_percent_mean_last10"
METHODS = {
    "FedAvg": "fedavg",
    "FedProx": "fedprox",
    "Ditto": "ditto",
    "FedRep": "fedrep",
    "CReFF": "creff",
    "IFCA": "ifca",
    "FedPFA": "fedpfa",
    "FedAMP": "fedamp",
    "FedSoft": "fedsoft",
    "DA-PFL": "dapfl",
}
BESIDE = ("fedavg-ft", "kin")
FIRST20 = "CIFAR100(20 classes)"
MANY = {
    "partition.clients": 100,
    "train.participation": 0.2,
    "ifca.clusters": 7,
    "fedpfa.clusters": 7,
    "fedsoft.clusters": 7,
}
CIFAR100: dict[str, Any] = {
    "data.source": "cifar100",
    "data.test": "proportions",  # a tenth as many test images of each class as training images
    "data.test_share": 0.5,
    "model.name": "cnn5-wide",
    "train.lr": 0.001,
    "train.local_epochs": 10,  # not stated; with fewer, so small a rate learns next to nothing
}
# CIFAR-10's test is "10% of the corresponding class samples in the test dataset": of the classes
# that a client owns (as the file has it), or as many of each as it has, which is CIFAR-100's.
OWN = Setting(
    "CIFAR10",
    "own proportions;alpha=0.5;20 clients",
    "cifar10",
    {"partition.alpha": 0.5, "data.test": "proportions", "data.test_share": 0.5},
    "tested by own proportions of classes, the other reading",
)
BY_CLASS = {"evaluate.metrics": ["per_class_accuracy"]}  # Table IV is read from these runs
FEMNIST = {"FEMNIST(10 letters)": "the data cannot be had on the machine of these runs"}


def settings(dataset: str, source: str, **more: Any) -> tuple[Setting, ...]:
    """20 and 100 clients, each with low and high imbalance."""
    return tuple(
        Setting(
            dataset,
            f"{n} clients;alpha={alpha:g}",
            source,
            {
                "partition.alpha": alpha,
                **(MANY if n == 100 else {}),
                **(BY_CLASS if (dataset, n, alpha) == (FIRST20, 20, 0.5) else {}),
                **more,
            },
        )
        for n in (20, 100)
        for alpha in (1.0, 0.5)
    )


def accuracies(number: int, dataset: str, source: str, *beside: Setting, **more: Any) -> Table:
    """One of the tables of accuracies."""
    return Table(
        f"dapfl-{number}",
        PAPER,
        f"Accuracy, {dataset}",
        "dapfl-1",
        (*settings(dataset, source, **more), *beside),
        METHODS,
        BESIDE,
        {ACCURACY: "last_10"},
        claims=(
            Claim("DA-PFL is best in every setting", best("DA-PFL", [*METHODS], ACCURACY)),
            Claim(
                "DA-PFL is at least ten points above FedAvg",
                above("DA-PFL", ["FedAvg"], ACCURACY, 10.0),
            ),
        ),
    )


VARIANTS = {"DA-PFL-V1": "dapfl:variant=v1", "DA-PFL-V2": "dapfl:variant=v2", "DA-PFL": "dapfl"}
TABLES = (
    accuracies(1, "CIFAR10", "cifar10", OWN),
    accuracies(2, FIRST20, "cifar100", **CIFAR100),
    Table("dapfl-3", PAPER, "Accuracy, FEMNIST", absent={"": FEMNIST["FEMNIST(10 letters)"]}),
    Table(
        "dapfl-4",
        PAPER,
        "Accuracy by how many samples of a class a client has",
        "dapfl-1",
        settings(FIRST20, "cifar100", **CIFAR100)[1:2],
        METHODS,
        BESIDE,
        {"accuracy_percent": "by_shots"},
        claims=(
            Claim(
                "DA-PFL is best on the classes that a client has few samples of",
                best("DA-PFL", [*METHODS], "accuracy_percent", where="Few"),
            ),
            Claim(
                "DA-PFL is best on the classes that a client has medium many samples of",
                best("DA-PFL", [*METHODS], "accuracy_percent", where="Medium"),
            ),
            Claim(
                "DA-PFL keeps within a point of FedAvg on the classes of many samples",
                above("DA-PFL", ["FedAvg"], "accuracy_percent", -1.0, where="Many"),
            ),
        ),
        notes="by the samples that a client trains on, of the model after the last round",
    ),
    Table(
        "dapfl-5",
        PAPER,
        "What each part of the method is worth",
        "dapfl-1",
        settings("CIFAR10", "cifar10")[:1],
        VARIANTS,
        (),
        {"accuracy_percent": "last_10"},
        claims=(
            Claim(
                "DA-PFL is best and V1, without affinity, is worst",
                best("DA-PFL", [*VARIANTS], "accuracy_percent"),
            ),
        ),
    ),
    Table(
        "dapfl-6",
        PAPER,
        "Rounds to a target accuracy",
        "dapfl-1",
        (
            settings("CIFAR10", "cifar10")[1],
            settings(FIRST20, "cifar100", **CIFAR100)[1],
        ),
        {m: label for m, label in METHODS.items() if m not in ("FedRep", "IFCA", "FedSoft")},
        ("kin",),
        {"rounds_to_target": "rounds_to_target"},
        claims=(
            Claim(
                "DA-PFL needs the fewest rounds",
                best(
                    "DA-PFL",
                    ["FedAvg", "FedProx", "Ditto", "CReFF", "FedPFA", "FedAMP", "DA-PFL"],
                    "rounds_to_target",
                    least=True,
                ),
            ),
        ),
        absent=FEMNIST,
    ),
)
