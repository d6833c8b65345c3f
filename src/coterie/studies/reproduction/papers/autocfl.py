"""Gong et al.: AutoCFL, IEEE Transactions on Big Data 2024."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coterie.studies.reproduction.claims import above, at_least, at_most, best, every, gains
from coterie.studies.reproduction.table import Claim, Setting, Table

PAPER = "AutoCFL, IEEE Transactions on Big Data 2024"
ACCURACY = "accuracy_percent"
PRINTED = "autocfl:guard=none"  # Algorithm 1; `autocfl` has our guard against needless groups
METHODS = {
    "FedAvg": "fedavg",
    "IFCA": "ifca",
    "MTCFL": "cfl",
    "FL+HC": "flhc",
    "AutoCFL": PRINTED,
}
DATA = {
    "CIFAR10": ("cifar10", "cnn-c", "0,90,180,270"),
    "FMNIST": ("fashion-mnist", "cnn-f", "0,180"),
    "MNIST": ("mnist", "cnn-m", "0,180"),
}


CLUSTERINGS = {
    "AutoCFL": PRINTED,
    "K-means": "autocfl:clustering=kmeans",
    "HAC": "autocfl:clustering=hac",
    "DBSCAN": "autocfl:clustering=dbscan",
}
NEAREST = "another draw of sizes: the clients whose size is nearest stand for each of the paper's"


def settings() -> tuple[Setting, ...]:
    """The six settings on each data set; IFCA is told the true number of groups."""
    return tuple(setting(data, name) for data in DATA for name in NAMES)


NAMES = (
    "Non-IID-La-Im",
    "Non-IID-La-B",
    "Non-IID-In-Im",
    "Non-IID-In-B",
    "IID-Im",
    "IID-B",
)


def setting(data: str, name: str) -> Setting:
    """One of the six settings."""
    source, model, angles = DATA[data]
    turned = f"rotation:{angles}"
    base = {"Non-IID-La": "label-groups", "Non-IID-In": turned, "IID": "iid:stratified=true"}
    kind, size = name.rsplit("-", 1)
    groups = {"Non-IID-La": 4, "Non-IID-In": angles.count(",") + 1, "IID": 1}[kind]
    given: dict[str, Any] = {
        "data.source": source,
        "model.name": model,
        "partition.kind": base[kind] + ("+quantity" if size == "Im" else ""),
        "ifca.clusters": groups,
    }
    return Setting(data, name, source, given)


TABLES = (
    Table(
        "autocfl-1",
        PAPER,
        "Accuracy in six settings",
        "autocfl-1",
        settings(),
        METHODS,
        ("autocfl", "autocfl:clustering=auto_cosine", "kin", "oracle"),
        {ACCURACY: "final"},
        claims=(
            Claim("AutoCFL is best in every setting", best("AutoCFL", [*METHODS], ACCURACY)),
            Claim(
                "AutoCFL is above FedAvg where groups were planted",
                above("AutoCFL", ["FedAvg"], ACCURACY, where="Non-IID"),
            ),
            Claim(
                "AutoCFL gains nine points over FedAvg, mean of the imbalanced settings",
                gains("AutoCFL", "FedAvg", ACCURACY, 9.0, "-Im"),
            ),
        ),
    ),
    Table(
        "autocfl-2",
        PAPER,
        "Accuracy of the clients with few samples",
        "autocfl-1",
        (replace(setting("CIFAR10", "Non-IID-La-Im"), differs=NEAREST),),
        {"Local": "local", "FedAvg": "fedavg", "AutoCFL": PRINTED},
        ("autocfl", "autocfl:clustering=auto_cosine", "kin", "oracle"),
        {ACCURACY: "of_size"},
        claims=(
            Claim(
                "Every small client does better with AutoCFL than with FedAvg",
                above("AutoCFL", ["FedAvg"], ACCURACY, where="samples"),
            ),
            Claim(
                "Every small client does better with AutoCFL than alone",
                above("AutoCFL", ["Local"], ACCURACY, where="samples"),
            ),
        ),
    ),
    Table(
        "autocfl-3",
        PAPER,
        "Rounds until the clusters are final, and clients in the right one",
        "autocfl-1",
        settings(),
        {m: label for m, label in METHODS.items() if m != "FedAvg"},
        ("autocfl", "autocfl:clustering=auto_cosine", "kin"),
        {
            "clustering_rounds": "clustering_rounds",
            "correct_clients_of_20": "correct",
            "final_clusters": "clusters",
        },
        claims=(
            Claim(
                "AutoCFL's clusters are final within six rounds",
                at_most("AutoCFL", "clustering_rounds", 6),
            ),
            Claim(
                "AutoCFL places 20 of 20 where labels differ",
                at_least("AutoCFL", "correct_clients_of_20", 20, "Non-IID-La"),
            ),
            Claim(
                "AutoCFL makes one cluster of clients that are alike",
                at_most("AutoCFL", "final_clusters", 1, "IID"),
            ),
        ),
    ),
    Table(
        "autocfl-4",
        PAPER,
        "Members of the clusters by other clusterings of the same distances",
        "autocfl-1",
        (setting("CIFAR10", "Non-IID-La-Im"),),
        CLUSTERINGS,
        ("autocfl:clustering=auto_cosine",),
        {f"members_of_cluster_{i}": f"members_{i}" for i in range(1, 5)},
        claims=tuple(
            Claim(
                f"{method} puts the clients of all four groups together",
                every(*(at_least(method, f"members_of_cluster_{i}", 5) for i in range(1, 5))),
            )
            for method in CLUSTERINGS
        ),
        notes="of each planted group, how many of its five clients are in the cluster for it",
    ),
    Table(
        "autocfl-5",
        PAPER,
        "Votes by size and votes that all count the same",
        "autocfl-1",
        settings(),
        {"Weighted voting": PRINTED, "Unweighted voting": f"{PRINTED}:weighted=false"},
        ("autocfl", "autocfl:clustering=auto_cosine"),
        {"correct_clients_of_20": "correct", "final_clusters": "clusters"},
        claims=(
            Claim(
                "Votes by size place at least as many clients in every setting",
                above("Weighted voting", ["Unweighted voting"], "correct_clients_of_20"),
            ),
        ),
    ),
    Table(
        "autocfl-fig1",
        PAPER,
        "Sample sizes of the motivating example",
        absent={"": "it describes a setting, and nothing is measured"},
    ),
)
