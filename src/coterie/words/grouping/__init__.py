"""Grouping: distances in, labels out. Labels count 0, 1, 2, ... in order of first appearance."""

from __future__ import annotations

from coterie.words.grouping.hierarchy import (
    Curve,
    Cut,
    Linkage,
    agglomerate,
    auto_cut,
    curve,
    cut,
    cut_k,
    heights,
    tree,
)
from coterie.words.grouping.labels import (
    Guarded,
    canonical,
    closest,
    components,
    guard,
    nearest,
    nearest_group,
    silhouette,
)
from coterie.words.grouping.lloyd import kmeans
from coterie.words.grouping.propagation import (
    Exemplars,
    affinity_propagation,
    exemplars,
    hopkins,
    mean_hopkins,
)
from coterie.words.grouping.seeding import farthest_first, kmeanspp
from coterie.words.grouping.splitting import Incongruence, bipartition, incongruence, separable

__all__ = [
    "Curve",
    "Cut",
    "Exemplars",
    "Guarded",
    "Incongruence",
    "Linkage",
    "affinity_propagation",
    "agglomerate",
    "auto_cut",
    "bipartition",
    "canonical",
    "closest",
    "components",
    "curve",
    "cut",
    "cut_k",
    "exemplars",
    "farthest_first",
    "guard",
    "heights",
    "hopkins",
    "incongruence",
    "kmeans",
    "kmeanspp",
    "mean_hopkins",
    "nearest",
    "nearest_group",
    "separable",
    "silhouette",
    "tree",
]
