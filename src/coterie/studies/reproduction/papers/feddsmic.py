"""Li et al.: Multi-initial-Center Federated Learning ... (FedDSMIC), ICA3PP 2022."""

from __future__ import annotations

from coterie.studies.reproduction.claims import above, best
from coterie.studies.reproduction.table import Claim, Setting, Table

PAPER = "FedDSMIC, ICA3PP 2022"
ACCURACY, BOTTOM = "accuracy_percent_top5_mean", "bottom5_accuracy_percent"
METHODS = {
    "Local": "local",
    "FedAvg": "fedavg",
    "FedProx": "fedprox",
    "IFCA": "ifca",
    "FedSEM": "fedsem:start=random",
    "PerFedAvg": "perfedavg",
    "FedDS": "fedds",
    "FedDSMIC": "feddsmic",
}
SMALL = "clients with fewer than 20 samples are left out"
ANOTHER = f"Fashion-MNIST, which the paper does not have; {SMALL}"
BESIDE = ("feddsmic:seeding=random", "fedsem", "kin", "oracle")
NOT_HERE = {
    "EMNIST": "the data cannot be had on the machine of these runs",
    "FEMNIST": "the data cannot be had on the machine of these runs",
    "CIFAR10": "MobileNet-v2 with 80 clients is beyond the time of these runs",
    "CIFAR100": "only the first 20 classes were at hand",
}


def settings(dataset: str, source: str, differs: str) -> tuple[Setting, ...]:
    """The three alphas on a data set."""
    return tuple(
        Setting(
            dataset,
            f"alpha={alpha}",
            source,
            {"data.source": source, "partition.alpha": alpha},
            differs,
        )
        for alpha in (0.05, 0.5, 1.0)
    )


TABLES = (
    Table(
        "feddsmic-1",
        PAPER,
        "Data sets, networks and numbers of clients",
        absent={"": "it describes the settings, and nothing is measured"},
    ),
    Table(
        "feddsmic-2",
        PAPER,
        "Accuracy and accuracy of the five worst clients",
        "feddsmic-2",
        (
            *settings("MNIST", "mnist", SMALL),
            *settings("FMNIST", "fashion-mnist", ANOTHER),
        ),
        METHODS,
        BESIDE,
        {ACCURACY: "top5_weighted", BOTTOM: "bottom5_in_top5"},
        claims=(
            Claim(
                "FedDSMIC has the best accuracy in every setting",
                best("FedDSMIC", [*METHODS], ACCURACY),
            ),
            Claim(
                "FedDSMIC's worst clients do better than those of any clustered method",
                best("FedDSMIC", ["IFCA", "FedSEM", "FedDS", "FedDSMIC"], BOTTOM),
            ),
            Claim(
                "FedDSMIC is at least one point above FedAvg in every setting",
                above("FedDSMIC", ["FedAvg"], ACCURACY, 1.0),
            ),
            Claim(
                "FedSEM is the worst of the clustered methods",
                best("FedSEM", ["IFCA", "FedSEM", "FedDSMIC"], ACCURACY, least=True),
            ),
        ),
        absent=NOT_HERE,
    ),
    Table(
        "feddsmic-3",
        PAPER,
        "Accuracy of the 20 % of clients that join after the training",
        "feddsmic-2",
        (
            Setting(
                "MNIST",
                "20% unseen clients",
                "mnist",
                {"partition.alpha": 0.5, "newcomers.share": 0.2, "newcomers.epochs": 1},
                SMALL,
            ),
        ),
        {m: METHODS[m] for m in ("FedAvg", "IFCA", "FedSEM", "FedDSMIC")},
        ("feddsmic:seeding=random", "kin"),
        {"accuracy_percent": "newcomers_given"},
        claims=(
            Claim(
                "FedDSMIC is best for clients that were not there",
                best("FedDSMIC", ["FedAvg", "IFCA", "FedSEM", "FedDSMIC"], "accuracy_percent"),
            ),
        ),
        absent=NOT_HERE,
        notes="alpha is not stated; 0.5 is that of the paper's curves",
    ),
)
