"""Robust merging: a cluster's model where some of its clients may send anything.

Yin, Chen, Ramchandran, Bartlett: Byzantine-Robust Distributed Learning: Towards Optimal Statistical
Rates. ICML 2018. (trimmed mean, median)
Blanchard, El Mhamdi, Guerraoui, Stainer: Machine Learning with Adversaries: Byzantine Tolerant
Gradient Descent. NeurIPS 2017. (multi-Krum)
Sun, Kairouz, Suresh, McMahan: Can You Really Backdoor Federated Learning? 2019. (norm clipping; its
bound is the median norm here, as in FLAME, Nguyen et al., USENIX Security 2022)

Everybody counts alike: how many samples a client has is its own word, and would be its weight.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from coterie.core import checks
from coterie.core.byzantine import hostile, needed
from coterie.core.types import Replies, State
from coterie.words.distance import squared_l2

LACKING = "merge_lacking"  # (r, 4) where a state keeps: round, cluster, answers, answers needed


def trimmed_mean(rows: Tensor, f: int) -> Tensor:
    """Number by number the mean without the f smallest and the f largest: (m, P), f -> (P,).

    >>> trimmed_mean(torch.tensor([[1.0], [3.0], [1000.0], [2.0]]), 1).tolist()
    [2.5]
    """
    checks.rows(rows)
    if not 0 <= 2 * f < len(rows):
        raise ValueError(f"nothing is left of {len(rows)} rows without {f} at each end")
    return rows.sort(0).values[f : len(rows) - f].mean(0)


def median(rows: Tensor) -> Tensor:
    """Number by number the middle one, or the mean of the two in the middle: (m, P) -> (P,).

    >>> median(torch.tensor([[1.0], [3.0], [1000.0], [2.0]])).tolist()
    [2.5]
    """
    return trimmed_mean(rows, (len(rows) - 1) // 2)


def krum_scores(rows: Tensor, f: int) -> Tensor:
    """How far each row is from the m - f - 2 others nearest to it, squared: (m, P), f -> (m,).

    >>> krum_scores(torch.tensor([[0.0], [1.0], [2.0], [9.0]]), 0).tolist()
    [5.0, 2.0, 5.0, 113.0]
    """
    checks.rows(rows)
    if len(rows) < 2 * f + 3:
        raise ValueError(f"Krum takes {2 * f + 3} rows where {f} may be hostile, got {len(rows)}")
    D = squared_l2(rows.double()).fill_diagonal_(torch.inf)
    return D.sort(1).values[:, : len(rows) - f - 2].sum(1)


def multi_krum(rows: Tensor, f: int) -> Tensor:
    """The mean of the m - f rows of least Krum score: (m, P), f -> (P,). With f = 0, of all.

    >>> multi_krum(torch.tensor([[0.0], [1.0], [2.0], [9.0], [1.0]]), 1).tolist()
    [1.0]
    """
    chosen = krum_scores(rows, f).argsort(stable=True)[: len(rows) - f].sort().values
    return rows[chosen].mean(0)


def norm_clipped(rows: Tensor, start: Tensor) -> Tensor:
    """The mean of rows that are no farther from `start` than their median: (m, P), (P,) -> (P,).

    >>> norm_clipped(torch.tensor([[1.0], [2.0], [300.0]]), torch.tensor([0.0])).tolist()
    [1.6666666269302368]
    """
    checks.rows(rows)
    step = rows - start
    norms = step.double().norm(dim=1)
    factor = (middle(norms) / norms.clamp(min=1e-300)).clamp(max=1)
    clipped: Tensor = step * factor.to(step.dtype)[:, None]
    return start + clipped.mean(0)


def middle(x: Tensor) -> Tensor:
    """The median of some numbers: (m,) -> ()."""
    return median(x[:, None]).squeeze(0)


RULES: dict[str, Callable[[Tensor, int, Tensor], Tensor]] = {  # of rows, f and the model before
    "trimmed-mean": lambda rows, f, start: trimmed_mean(rows, f),
    "median": lambda rows, f, start: median(rows),
    "multi-krum": lambda rows, f, start: multi_krum(rows, f),
    "norm-clip": lambda rows, f, start: norm_clipped(rows, start),
}


def merge_robustly(
    state: State, w: Replies, rule: str, share: float, columns: Tensor | slice | None = None
) -> State:
    """Each model becomes the robust mean of what its own clients trained, cluster by cluster.

    A cluster of which too few answered keeps its model, and the state remembers so: of two, nobody
    can tell which is hostile. Who is alone in its cluster can harm nobody else and trains on.
    """
    columns = slice(None) if columns is None else columns
    labels, models, lacking = state.assign[w.clients], state.models.clone(), []
    for c in labels.unique().tolist():
        rows = w.values[labels == c]
        m, least = len(rows), needed(rule, len(rows), share)
        if int((state.assign == c).sum()) == 1:
            models[c, columns] = rows[0]
        elif m < least:
            lacking.append([state.round, c, m, least])
        else:
            models[c, columns] = RULES[rule](rows, hostile(m, share), state.models[c, columns])
    state = state.hold(models)
    if not lacking:
        return state
    before = state.memory.get(LACKING, torch.empty(0, 4, dtype=torch.long))
    return state.hold(**{LACKING: torch.cat([before, torch.tensor(lacking)])})
