"""The names other libraries and papers use for the same settings, accepted and translated.

Each is accepted in the table of the key it stands for, or at the top of the file.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from coterie.config.problems import Findings, Path, Problem

ALIASES: dict[str, tuple[str, str]] = {
    alias: (table, key)
    for table, key, aliases in (
        ("partition", "clients", "num_clients client_num num_users n_clients n_parties"),
        ("train", "participation", "join_ratio frac fraction fraction_fit fraction_train"),
        ("train", "participation", "proportion sample_fraction"),
        ("train", "rounds", "global_rounds num_rounds num_server_rounds comm_round"),
        ("train", "local_epochs", "local_ep"),
        ("train", "batch_size", "local_bs"),
        ("train", "lr", "local_learning_rate learning_rate local_lr"),
        ("train", "optimiser", "optimizer local_optimizer"),
        ("train", "weight_decay", "l2"),
        ("server", "optimiser", "server_optimizer server_optimiser"),
        ("server", "merge", "aggregator aggregation_rule robust_aggregation"),
        ("train", "clip", "clip_norm clip_grad_norm grad_clip gradient_clip max_grad_norm"),
        ("train", "schedule", "lr_schedule lr_scheduler scheduler"),
        ("train", "warmup_rounds", "warmup"),
        ("train", "lr_decay", "learning_rate_decay_gamma lr_gamma"),
        ("data", "source", "dataset"),
        ("evaluate", "every", "eval_gap eval_interval"),
        ("output", "dir", "out"),
    )
    for alias in aliases.split()
}
WITHIN = (("server", "optimizer", "optimiser"),)  # names that another table has for another key
# In the table of a method or a kind of partition: the other name, and the fields it may stand for.
OPTIONS = {
    "beta": ("alpha",),
    "classes_per_client": ("per_client",),
    "num_classes_per_client": ("per_client",),
    "lamda": ("lam", "lambda_", "strength"),
    "num_clusters": ("n_clusters", "k", "clusters"),
    "n_clusters": ("k", "clusters"),
    "k": ("n_clusters", "clusters"),
    "cluster_alpha": ("threshold",),
    "eps_1": ("eps1",),
    "eps_2": ("eps2",),
}


def translate(tree: dict[str, Any], found: Findings) -> None:
    """Rename every alias in `tree` to the key it stands for."""
    for alias, (table, key) in ALIASES.items():
        for old in ((alias,), (table, alias)):
            home = tree if len(old) == 1 else tree.get(table)
            if isinstance(home, dict) and alias in home:
                target = tree.setdefault(table, {})
                if isinstance(target, dict):
                    move(home, target, old, (table, key), found)
    for table, alias, key in WITHIN:
        home = tree.get(table)
        if isinstance(home, dict) and alias in home:
            move(home, home, (table, alias), (table, key), found)
    data = tree.get("data")
    if isinstance(data, dict) and isinstance(data.get("test"), int | float):  # a share: own split
        move(data, data, ("data", "test"), ("data", "test_share"), found)


def translate_options(
    own: dict[str, Any], table: Path, fields: Collection[str], found: Findings
) -> None:
    """Rename the aliases in the own table of a method or a kind, which has these fields."""
    for alias, keys in OPTIONS.items():
        key = next((k for k in keys if k in fields), None)
        if alias in own and alias not in fields and key:
            move(own, own, (*table, alias), (*table, key), found)


def move(
    home: dict[str, Any], target: dict[str, Any], old: Path, new: Path, found: Findings
) -> None:
    """Take the alias at `old` out of its table, and put its value into the table of `new`."""
    value = home.pop(old[-1])
    if new[-1] in target:
        fix = f"{'.'.join(new)} is the same; keep one of the two"
        found.problems.append(Problem(old, value, "given twice", fix))
    else:
        target[new[-1]] = value
        found.renamed[new] = old
