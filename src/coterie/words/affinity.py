"""Affinity: how much clients should take from one another, as a mixing matrix (m, m) or (k, m)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from coterie.core import checks


def complementarity(counts: Tensor) -> Tensor:
    """How well two clients' class counts make up for one another (DA-PFL Eq. 5, 6).

    (n, C) counts -> (n, n) float64 in [L/C, 3L/C] for L common classes: (L/C)(2 - cos) of the
    counts' deviations from their common mean. cos is 0 where a deviation vanishes. NaN on the
    diagonal and where two clients have no class in common.

    >>> complementarity(torch.tensor([[80, 50, 20], [20, 50, 80], [80, 50, 20]]))[0, 1:].tolist()
    [3.0, 1.0]
    """
    _counts(counts)
    return _complements(counts, counts).fill_diagonal_(torch.nan)


def _counts(counts: Tensor) -> None:
    if counts.ndim != 2 or not counts.numel():
        raise ValueError(f"counts must be (n, C), got {tuple(counts.shape)}")
    checks.weights(counts.flatten(), "counts", counts.numel())


def _complements(a: Tensor, b: Tensor) -> Tensor:
    """The complementarity of some clients and others, NaN without a common class: -> (m, k)."""
    S, T = a.double(), b.double()
    has, have = (S > 0).double(), (T > 0).double()
    common = has @ have.T  # L
    mine = S @ have.T  # the sum of i's counts over the classes common with j
    theirs = has @ T.T
    both = mine + theirs  # 2 L s
    # times 4L everything is a whole number, so that a vanishing deviation is exactly 0
    inner = 4 * common * (S @ T.T) - both.square()
    square = 4 * common * (S.square() @ have.T) - 4 * both * mine + both.square()
    other = 4 * common * (has @ T.square().T) - 4 * both * theirs + both.square()
    norms = (square.clamp_min(0) * other.clamp_min(0)).sqrt()
    flat = torch.minimum(square, other) <= 1e-12 * both.square()
    cos = torch.where(flat, 0, inner / torch.where(flat, 1, norms)).clamp_(-1, 1)
    c = common / S.shape[1] * (2 - cos)
    return torch.where(common > 0, c, torch.nan)


def affinity(counts: Tensor, norm: Literal["minmax", "max"] = "minmax") -> Tensor:
    """DA-PFL's static affinity in [0, 1]: (n, C) counts -> (n, n) float64, 0 on the diagonal.

    Clients without a common class get the smallest complementarity there is. "minmax" spreads the
    values over [0, 1], so that the least affine pairs get 0; "max" divides by the largest. All
    equal, or no two clients with a common class: 1 for every pair.

    >>> affinity(torch.tensor([[8, 5, 2], [2, 5, 8], [8, 5, 2]])).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """
    if norm not in ("minmax", "max"):
        raise ValueError(f"norm must be 'minmax' or 'max', got {norm!r}")
    return scaled(complementarity(counts), complementarity_range(counts), norm)


def scaled(c: Tensor, span: Tensor, norm: Literal["minmax", "max"] = "minmax") -> Tensor:
    """The affinity of some clients, from their complementarity and its range among all.

    (m, m), (2,) -> (m, m): what `affinity` gives for these clients, without the others' rows.

    >>> span = torch.tensor([1.0, 3.0])
    >>> scaled(torch.tensor([[torch.nan, 2.0], [2.0, torch.nan]]), span).tolist()
    [[0.0, 0.5], [0.5, 0.0]]
    """
    low, high = span
    if not low < high:
        return torch.ones_like(c).fill_diagonal_(0)
    c = torch.where(c.isnan(), low, c)
    c = (c - low) / (high - low) if norm == "minmax" else c / high
    return c.fill_diagonal_(0)


def complementarity_range(counts: Tensor) -> Tensor:
    """The smallest and the largest complementarity of two clients: (n, C) -> (2,) float64.

    Some rows at a time: (n, n) is never there. Infinity first where no two have a common class.

    >>> complementarity_range(torch.tensor([[8, 5, 2], [2, 5, 8], [8, 5, 2]])).tolist()
    [1.0, 3.0]
    """
    _counts(counts)
    low, high = torch.inf, -torch.inf
    for i in range(0, len(counts), 128):  # small enough for a cache
        c = _complements(counts[i : i + 128], counts[i:]).fill_diagonal_(torch.nan)
        known = c[~c.isnan()]  # each pair once: it is the same both ways
        if len(known):
            low, high = min(low, float(known.min())), max(high, float(known.max()))
    return torch.tensor([low, high], dtype=torch.float64)


def static_weights(c: Tensor) -> Tensor:
    """Mixing weights by affinity alone (DA-PFL-V2): (m, m) -> (m, m), rows sum to 1, own weight 0.

    A client without any affinity takes the same from all others; a single client keeps its model.

    >>> static_weights(torch.tensor([[0.0, 1.0, 3.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])).tolist()
    [[0.0, 0.25, 0.75], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]
    """
    checks.square(c, "affinity")
    checks.weights(c.flatten(), "affinity", c.numel())
    m = len(c)
    if m == 1:
        return torch.ones(1, 1, dtype=torch.float64)
    others = torch.full((m, m), 1 / (m - 1), dtype=torch.float64).fill_diagonal_(0)
    return _shares(c.double().clone().fill_diagonal_(0), others)


def dynamic_weights(c: Tensor, squared: Tensor, sigma: float, eps: float = 1e-8) -> Tensor:
    """DA-PFL's mixing weights (Eq. 7, 8): (m, m) affinities and squared distances -> (m, m).

    Affinity times 1 - exp(-(|w_i - w_j|^2 + eps)/sigma), rows scaled to sum to 1, own weight 0.
    Equal models leave the affinities as they are. See `static_weights` for lone clients.

    >>> c = torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    >>> dynamic_weights(c, torch.zeros(3, 3), sigma=1.0)[0].tolist()
    [0.0, 0.5, 0.5]
    """
    still = static_weights(c)
    _squares(squared, sigma)
    if squared.shape != c.shape:
        raise ValueError(f"{tuple(c.shape)} affinities, but {tuple(squared.shape)} distances")
    if not eps >= 0:
        raise ValueError(f"eps must not be negative, got {eps}")
    if len(c) == 1:
        return still
    apart = -torch.expm1(-(squared.double() + eps) / sigma)
    return _shares((c.double() * apart).fill_diagonal_(0), still)


def median_sigma(squared: Tensor) -> float:
    """The median of the positive squared distances between two clients, 1 if there are none.

    (m, m) -> a number; the scale of `dynamic_weights` that suits any network.

    >>> median_sigma(torch.tensor([[0.0, 1.0, 4.0], [1.0, 0.0, 9.0], [4.0, 9.0, 0.0]]))
    4.0
    """
    _squares(squared)
    m = len(squared)
    pairs = squared[torch.ones(m, m, dtype=torch.bool).triu(1)].double()
    pairs = pairs[pairs > 0].sort().values
    if not len(pairs):
        return 1.0
    return float((pairs[(len(pairs) - 1) // 2] + pairs[len(pairs) // 2]) / 2)


def attention_rate(squared: Tensor, alpha: float, sigma: float) -> float:
    """FedAMP's alpha_k, reduced where a client would otherwise keep less than nothing of its own.

    >>> attention_rate(torch.zeros(3, 3), alpha=1.0, sigma=1.0)
    0.5
    """
    _squares(squared, sigma)
    if not alpha > 0:
        raise ValueError(f"alpha must be positive, got {alpha}")
    taken = (torch.exp(-squared.double() / sigma) / sigma).fill_diagonal_(0).sum(1).max()
    return alpha / max(1.0, alpha * float(taken))


def attention(squared: Tensor, alpha: float, sigma: float) -> Tensor:
    """FedAMP's attention: (m, m) squared distances -> (m, m), rows sum to 1, none negative.

    alpha exp(-|w_i - w_j|^2/sigma)/sigma from each other client, the rest from oneself; alpha is
    first reduced to `attention_rate`.

    >>> attention(torch.zeros(2, 2), alpha=0.25, sigma=1.0).tolist()
    [[0.75, 0.25], [0.25, 0.75]]
    """
    rate = attention_rate(squared, alpha, sigma)
    xi = rate * torch.exp(-squared.double() / sigma) / sigma
    xi.fill_diagonal_(0)
    return xi + torch.diag((1 - xi.sum(1)).clamp_min(0))


def heuristic_attention(similarity: Tensor, self_weight: float, scale: float = 1.0) -> Tensor:
    """HeurFedAMP's attention: a fixed weight for oneself, softmax of cosines for the others.

    (m, m) similarities -> (m, m), rows sum to 1. A single client keeps its model.

    >>> heuristic_attention(torch.eye(3), self_weight=0.5).tolist()
    [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
    """
    checks.square(similarity, "similarity")
    if not 0 <= self_weight <= 1:
        raise ValueError(f"self_weight must lie in [0, 1], got {self_weight}")
    if len(similarity) == 1:
        return torch.ones(1, 1, dtype=torch.float64)
    others = (similarity.double() * scale).fill_diagonal_(-torch.inf).softmax(1)
    return ((1 - self_weight) * others).fill_diagonal_(self_weight)


def importance(losses: Tensor, floor: float = 0.01) -> Tensor:
    """FedSoft's share of a client's samples that each centre fits best: (s, k) -> (k,) float64.

    Never below `floor`, so that no centre is forgotten; the first centre wins ties.

    >>> importance(torch.tensor([[1.0, 2.0], [1.0, 3.0]]), floor=0.1).tolist()
    [1.0, 0.1]
    """
    checks.rows(losses, "losses")
    k = losses.shape[1]
    return (losses.argmin(1).bincount(minlength=k).double() / len(losses)).clamp_min(floor)


def soft_weights(shares: Tensor, sizes: Tensor) -> Tensor:
    """One model per centre from all clients, by share times size (FedSoft): (m, k), (m,) -> (k, m).

    Rows sum to 1, or to 0 for a centre nobody has a share in.

    >>> soft_weights(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([1.0, 2.0])).tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """
    checks.shaped(shares, "shares", "m", "k")
    checks.weights(shares.flatten(), "shares", shares.numel())
    checks.weights(sizes, "sizes", len(shares))
    W = shares.double().T * sizes.double()
    return _shares(W, torch.zeros_like(W))


def responsibilities(losses: Tensor, weights: Tensor) -> Tensor:
    """Which component of a mixture each sample belongs to (FedEM): (s, k), (k,) -> (s, k).

    The softmax over components of log weight - loss, in float64: rows sum to 1.

    >>> responsibilities(torch.tensor([[2.0, 2.0]]), torch.tensor([0.5, 0.5])).tolist()
    [[0.5, 0.5]]
    """
    checks.rows(losses, "losses")
    checks.weights(weights, "weights", losses.shape[1])
    return (weights.double().log() - losses.double()).softmax(1)


def collaboration(variance: Tensor, means: Tensor) -> Tensor:
    """From whom each client takes its head, and how much (FedPAC): (m,), (m, d) -> (m, m) float64.

    Row i minimises sum_j a_j^2 variance_j + |means_i - sum_j a_j means_j|^2 over a >= 0 that sum
    to 1: others' heads lower the variance, and those of other data bring a bias.

    >>> collaboration(torch.ones(2), torch.zeros(2, 1)).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    >>> collaboration(torch.ones(2), torch.tensor([[0.0], [1.0]])).round(decimals=3).tolist()
    [[0.667, 0.333], [0.333, 0.667]]
    """
    checks.rows(means, "means")
    checks.weights(variance, "variance", len(means))
    from scipy.optimize import nnls  # here: scipy takes a while to import

    V, h = variance.double(), means.double()
    one, rows = torch.ones(len(V), 1, dtype=torch.float64), []
    for mine in h:
        apart = h - mine
        P = torch.diag(V) + apart @ apart.T
        P += 1e-9 * P.diagonal().mean().clamp_min(1e-30) * torch.eye(len(V))
        # With z = a / (a' P a) the conditions for a minimum are those of nonnegative least squares.
        root = torch.linalg.cholesky(P)
        goal = torch.linalg.solve_triangular(root, one, upper=False)
        z, _ = nnls(root.T.numpy(), goal[:, 0].numpy())
        rows.append(torch.from_numpy(z) / z.sum())
    return torch.stack(rows)


def _shares(W: Tensor, empty: Tensor) -> Tensor:
    """Rows scaled to sum to 1; rows of zeros are taken from `empty`."""
    total = W.sum(1, keepdim=True)
    return torch.where(total > 0, W / torch.where(total > 0, total, 1), empty)


def _squares(squared: Tensor, sigma: float = 1.0) -> None:
    checks.distances(squared, "squared distances")
    if not sigma > 0:
        raise ValueError(f"sigma must be positive, got {sigma}")
