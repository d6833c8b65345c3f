"""The blocks of a run's page: what each is called, how it is read, and which charts it has."""

from __future__ import annotations

from typing import NamedTuple


class Block(NamedTuple):
    """A section of the page."""

    key: str
    title: str
    how: str  # one sentence: how to read it
    charts: tuple[tuple[str, str], ...] = ()  # name in CHARTS, title
    columns: int = 1  # charts side by side


BLOCKS = (
    Block(
        "learning",
        "Accuracy and loss",
        "The thick line is the mean over clients on their own test samples, the band the middle "
        "80 % of them, and each thin line the mean of the clients that held that cluster's model "
        "at the time. A ring marks a round in which some clients were not tested, a dotted line "
        "one in which clients arrived or samples changed hands.",
        (("accuracy", "Accuracy by round"), ("loss", "Loss by round")),
        2,
    ),
    Block(
        "metrics",
        "Other metrics",
        "A line is the mean over those clients that have the metric, and a bar the share of a "
        "class's test samples that is right, over all clients; what each is stands in "
        "docs/metrics.md.",
        (("metrics", "Other metrics by round"), ("classes", "Accuracy by class")),
        2,
    ),
    Block(
        "gains",
        "Who gains, who loses",
        "A row is a client: the hollow marks are what it has with a reference (local training, "
        "FedAvg, or its model before adaptation), the filled one is what this run gives it, so a "
        "filled mark to the left of a hollow one is a client that loses. Many clients are drawn as "
        "points in order of their gain.",
        (("gains", "Accuracy of each client"),),
    ),
    Block(
        "clusters",
        "Who was grouped with whom",
        "A stream is a set of clients on their way through the rounds, in the colour of the "
        "cluster it comes from; streams that cross are clients that changed their cluster.",
        (("river", "Cluster river"), ("sizes", "Clients in each cluster")),
    ),
    Block(
        "distances",
        "How far apart clients are",
        "Dark squares along the diagonal are clients near each other, as the method measured it; "
        "where both strips change together, the clusters are the planted groups. On the map "
        "colour is the cluster and shape the planted group.",
        (("distances", "Distances in the order of the tree"), ("clients", "Map of the clients")),
    ),
    Block(
        "trajectories",
        "Gradient trajectories",
        "A line leads through the classes of one client: how much its data pull each class's "
        "weights towards them, and push them away; clients of one cluster should run together.",
        (("trajectories", "Trajectories by cluster"),),
    ),
    Block(
        "agreement",
        "How good the clusters are",
        "ARI and NMI are 1 where the clusters are exactly the planted groups and about 0 where "
        "they are no better than chance; silhouette needs no ground truth and is high where "
        "clusters are far apart.",
        (("agreement", "Agreement and silhouette by round"),),
    ),
    Block(
        "labels",
        "Who holds which labels",
        "A row is a client, a cell the share of its samples with that label; rows of one cluster, "
        "if there are any, lie together under one colour, and the bars are how many samples a "
        "client has.",
        (("labels", "Labels of each client"),),
    ),
    Block(
        "cross",
        "Every model on every cluster",
        "The diagonal is each cluster with its own model; a brighter cell beside it in the same "
        "row is a model that would have served those clients better.",
        (("cross", "Accuracy of clusters with each other's models"),),
    ),
    Block(
        "traffic",
        "What it cost to send",
        "The further left the line climbs, the cheaper the accuracy; every byte of training is "
        "counted, tests are not.",
        (("traffic", "Accuracy by bytes, and bytes by round"),),
    ),
    Block(
        "time",
        "Where the time went",
        "Each bar is a round: what clients computed, by the task they were asked, the tests, and "
        "what is left for the server.",
        (("time", "Seconds of each round"),),
    ),
    Block(
        "fairness",
        "How fair it is",
        "A curve that rises late and steeply gives everybody much the same; one that starts far "
        "to the left leaves some clients behind.",
        (("fairness", "Clients at or below an accuracy"), ("worst", "The worst clients by round")),
        2,
    ),
    Block(
        "health",
        "Health",
        "Answers that were not finite are left out, by name, and shown here; norms that grow "
        "without end are a learning rate that is too high.",
        (("rejected", "Rejected replies"), ("norms", "Norms of updates")),
    ),
    Block(
        "privacy",
        "What left each client",
        "What a method uploads is all that a curious server can learn from; the raw samples "
        "never leave.",
        (("uploads", "Bytes that left each client"),),
    ),
    Block(
        "newcomers",
        "Newcomers",
        "They took no part in the training and joined when it was over; each was given a model by "
        "the method and then trained it on its own samples.",
    ),
    Block("people", "All clients", "Every client with its numbers; click a head to sort."),
    Block(
        "again",
        "How to do it again",
        "With these settings, versions and this seed the run gives the same bits.",
    ),
)
