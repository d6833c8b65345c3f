"""Distances: rows in, (n, n) out. Also the small pure signatures they are taken between."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from coterie.core import checks

_BLOCK = 2**24  # numbers held in float64 at a time


def squared_l2(rows: Tensor) -> Tensor:
    """Squared Euclidean distances between rows: (n, P) -> (n, n), exactly symmetric.

    Models that are nearly alike lose all their digits in |a|^2 + |b|^2 - 2ab, so the rows are first
    taken relative to a central one and the products summed in float64. A distance below 1e-7 of
    the spread is 0; equal rows are exactly 0 apart.

    >>> squared_l2(torch.tensor([[0.0, 0.0], [3.0, 4.0]])).tolist()
    [[0.0, 25.0], [25.0, 0.0]]
    """
    return _pairs(rows).to(rows.dtype)


def l2(rows: Tensor) -> Tensor:
    """Euclidean distances between rows: (n, P) -> (n, n).

    >>> l2(torch.tensor([[0.0, 0.0], [3.0, 4.0]])).tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    """
    return _pairs(rows).sqrt_().to(rows.dtype)


def scaled_l2(rows: Tensor) -> Tensor:
    """Euclidean distances divided by the length of a row (AutoCFL Eq. 6): (n, P) -> (n, n).

    >>> scaled_l2(torch.tensor([[0.0, 0.0], [3.0, 4.0]])).tolist()
    [[0.0, 2.5], [2.5, 0.0]]
    """
    return l2(rows).div_(max(rows.shape[1], 1))


def cross_l2(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean distances from each row of `a` to each row of `b`: (m, P), (k, P) -> (m, k).

    >>> cross_l2(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0]])).tolist()
    [[5.0, 1.0]]
    """
    checks.shaped(a, "a", "m", "P")
    checks.rows(b, "b")
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"rows of unequal length: {a.shape[1]} and {b.shape[1]}")
    return _squared(a, b).sqrt_().to(a.dtype)


def cosine(rows: Tensor) -> Tensor:
    """Cosine similarities between rows: (n, P) -> (n, n) in [-1, 1], 1 on the diagonal.

    A row of zeros points nowhere: its similarity to every other row is 0.

    >>> cosine(torch.tensor([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]])).tolist()
    [[1.0, 0.0, -1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 1.0]]
    """
    unit = _unit(rows)
    s = unit @ unit.T
    return ((s + s.T) / 2).clamp_(-1, 1).fill_diagonal_(1)


def cosine_distance(rows: Tensor) -> Tensor:
    """1 - cosine between rows: (n, P) -> (n, n) in [0, 2]; 1 from a row of zeros to any other.

    Computed as half the squared distance of the unit rows, which keeps small angles exact.

    >>> cosine_distance(torch.tensor([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]])).tolist()
    [[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]
    """
    unit = _unit(rows)
    nowhere = (unit == 0).all(1)
    d = squared_l2(unit).div_(2).clamp_(0, 2)
    d[nowhere] = 1
    d[:, nowhere] = 1
    return d.fill_diagonal_(0)


def trajectories(T: Tensor) -> Tensor:
    """Distances between gradient trajectories (CFLGT): (n, 2, C) -> (n, n).

    The mean over classes of the plane distance between two clients' (pull, push) points.

    >>> trajectories(torch.tensor([[[0.0, 1.0], [0.0, 1.0]], [[3.0, 1.0], [4.0, 1.0]]])).tolist()
    [[0.0, 2.5], [2.5, 0.0]]
    """
    return cross_trajectories(T, T)


def cross_trajectories(a: Tensor, b: Tensor) -> Tensor:
    """The same from some trajectories to others: (m, 2, C), (k, 2, C) -> (m, k).

    >>> cross_trajectories(torch.zeros(1, 2, 2), torch.tensor([[[3.0, 0.0], [4.0, 0.0]]])).tolist()
    [[2.5]]
    """
    checks.shaped(a, "a", "m", "2", "C")
    _trajectories(b)
    d = a.new_zeros(len(a), len(b))
    for here, there in zip(a.unbind(2), b.unbind(2), strict=True):  # one class: (m, 2), (k, 2)
        d += torch.cdist(
            here.contiguous(), there.contiguous(), compute_mode="donot_use_mm_for_euclid_dist"
        )
    return d / a.shape[2]


def variation(T: Tensor) -> Tensor:
    """Heterogeneity c_v = std/mean of the pull and of the push: (n, 2, C) -> (2,).

    Pooled over clients and classes, population deviation; 0 where the mean is 0.

    >>> variation(torch.tensor([[[1.0, 3.0], [0.0, 0.0]]])).tolist()
    [0.5, 0.0]
    """
    _trajectories(T)
    mean = T.mean((0, 2))
    cv = T.std((0, 2), correction=0) / mean
    return torch.where(mean == 0, torch.zeros_like(cv), cv)


def forces(features: Tensor, probs: Tensor, labels: Tensor) -> Tensor:
    """What a client's samples do to each class vector: (s, d), (s, C), (s,) -> (2, C, d).

    First the pull of the samples of the class, then the push of the others; the gradient of the
    summed cross-entropy with respect to class c's weights is push[c] - pull[c].

    >>> v, p = torch.tensor([[2.0, 4.0]]), torch.tensor([[0.25, 0.75]])
    >>> forces(v, p, torch.tensor([0])).tolist()
    [[[1.5, 3.0], [0.0, 0.0]], [[0.0, 0.0], [1.5, 3.0]]]
    """
    checks.shaped(features, "features", "s", "d")
    checks.shaped(probs, "probs", "s", "C")
    if len(features) != len(probs):
        raise ValueError(f"{len(features)} features but {len(probs)} rows of probabilities")
    checks.indices(labels, "labels", len(probs), probs.shape[1])
    own = torch.zeros_like(probs).scatter_(1, labels[:, None], 1)
    return torch.stack([(own * (1 - probs)).T @ features, ((1 - own) * probs).T @ features])


def trajectory(features: Tensor, probs: Tensor, labels: Tensor, normalise: bool = True) -> Tensor:
    """A client's gradient trajectory (CFLGT Eq. 8): (s, d), (s, C), (s,) -> (2, C), pull and push.

    Forces averaged over the d coordinates; `normalise` also divides by the number of samples, so
    that clients of unequal size compare. No samples: zeros.

    >>> v, p = torch.tensor([[2.0, 4.0]]), torch.tensor([[0.25, 0.75]])
    >>> trajectory(v, p, torch.tensor([0])).tolist()
    [[2.25, 0.0], [0.0, 2.25]]
    """
    Z = forces(features, probs, labels).mean(2)
    return Z / max(len(labels), 1) if normalise else Z


def kl(p_local: Tensor, p_centre: Tensor, floor: float = 1e-12) -> Tensor:
    """Divergence of clients' from centres' predictions (FedDSMIC Eq. 6), summed over samples.

    (m, s, C), (k, s, C) -> (m, k). Probabilities below `floor` count as `floor` in the logarithms.

    >>> kl(torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[1.0, 0.0]], [[0.5, 0.5]]])).tolist()
    [[0.0, 0.6931471824645996]]
    """
    _predictions(p_local, p_centre)
    if min(float(p_local.min()), float(p_centre.min())) < 0:
        raise ValueError("probabilities must not be negative; for logits there is kl_logits")
    p, q = p_local.double(), p_centre.double()
    return _kl(p, p.clamp_min(floor).log(), q.clamp_min(floor).log()).to(p_local.dtype)


def kl_logits(local: Tensor, centre: Tensor) -> Tensor:
    """The same divergence from logits or log-probabilities: (m, s, C), (k, s, C) -> (m, k).

    >>> kl_logits(torch.tensor([[[0.0, 0.0]]]), torch.tensor([[[5.0, 5.0]]])).tolist()
    [[0.0]]
    """
    _predictions(local, centre)
    log_p, log_q = local.double().log_softmax(-1), centre.double().log_softmax(-1)
    return _kl(log_p.exp(), log_p, log_q).to(local.dtype)


def basis(data: Tensor, p: int = 3) -> Tensor:
    """The p leading left singular vectors of a client's data (PACFL): (f, s) -> (f, p).

    Each vector's largest entry is positive. Columns are zero where the data has fewer than p
    independent directions (fewer samples than p, or copies).

    >>> basis(torch.tensor([[0.0, 0.0], [3.0, -4.0]]), p=2).abs().tolist()
    [[0.0, 0.0], [1.0, 0.0]]
    """
    checks.shaped(data, "data", "f", "s")
    checks.count(p, "p")
    U, S, _ = torch.linalg.svd(data, full_matrices=False)
    U, S = U[:, :p], S[:p]
    spare = p - U.shape[1]
    if not S.numel():
        return data.new_zeros(data.shape[0], p)
    least = S[0] * max(data.shape) * torch.finfo(data.dtype).eps
    U = U * (least < S)
    U = U * torch.where(U.gather(0, U.abs().argmax(0, keepdim=True)) < 0, -1, 1)
    return torch.nn.functional.pad(U, (0, spare))


def principal_angles(a: Tensor, b: Tensor) -> Tensor:
    """Principal angles between two subspaces in degrees, ascending: (f, p), (f, q) -> (min(p, q),).

    The columns need not be orthonormal; a column that depends on earlier ones is at 90 degrees.

    >>> x, y, z = torch.eye(3).double()
    >>> principal_angles(torch.stack([x, y], 1), torch.stack([y, z], 1)).tolist()
    [0.0, 90.0]
    """
    checks.shaped(a, "a", "f", "p")
    checks.shaped(b, "b", "f", "q")
    if a.shape[0] != b.shape[0]:
        raise ValueError(f"subspaces of spaces of {a.shape[0]} and {b.shape[0]} dimensions")
    cos = torch.linalg.svdvals(_orthonormal(a).T @ _orthonormal(b))
    return _degrees(cos).to(a.dtype)


def subspaces(bases: Tensor, how: Literal["smallest", "trace"] = "smallest") -> Tensor:
    """Angles between data subspaces in degrees (PACFL): (n, f, p) -> (n, n).

    "smallest": the smallest true principal angle. "trace": the sum of the angles between matched
    vectors (first with first, second with second, ...), whatever the signs of the vectors.

    >>> x, y, z = torch.eye(3).double()
    >>> bases = torch.stack([torch.stack([x, y], 1), torch.stack([x, z], 1)])
    >>> subspaces(bases).tolist(), subspaces(bases, "trace").tolist()
    ([[0.0, 0.0], [0.0, 0.0]], [[0.0, 90.0], [90.0, 0.0]])
    """
    d = cross_subspaces(bases, bases, how).double()
    return ((d + d.T) / 2).fill_diagonal_(0).to(bases.dtype)


def cross_subspaces(a: Tensor, b: Tensor, how: Literal["smallest", "trace"] = "smallest") -> Tensor:
    """The same from some subspaces to others: (m, f, p), (k, f, p) -> (m, k).

    >>> x, y, z = torch.eye(3).double()
    >>> cross_subspaces(torch.stack([x, y], 1)[None], torch.stack([y, z], 1)[None]).tolist()
    [[0.0]]
    """
    checks.shaped(a, "a", "m", "f", "p")
    checks.shaped(b, "b", "k", "f", "p")
    if how not in ("smallest", "trace"):
        raise ValueError(f"how must be 'smallest' or 'trace', got {how!r}")
    Q, R = _orthonormal(a), _orthonormal(b)
    p = Q.shape[2]
    d = Q.new_zeros(len(Q), len(R))
    for i in _blocks(len(Q), len(R) * p * p):
        if how == "smallest":
            products = torch.einsum("ifp,jfq->ijpq", Q[i], R)
            d[i] = _degrees(torch.linalg.svdvals(products)[..., 0])
        else:
            d[i] = _degrees(torch.einsum("ifp,jfp->ijp", Q[i], R).abs()).sum(-1)
    return d


def _pairs(rows: Tensor) -> Tensor:
    """(n, n) squared distances in float64, symmetric to the bit."""
    checks.rows(rows)
    d = _squared(rows, rows)
    n = len(d)
    for i in _blocks(n, n):  # in place: at 10,000 clients a second copy is 800 MB
        d[i, i.start :] = (d[i, i.start :] + d[i.start :, i].T) / 2
        d[i.stop :, i] = d[i, i.stop :].T
    return d.fill_diagonal_(0)


def _squared(a: Tensor, b: Tensor) -> Tensor:
    """(m, k) squared distances in float64, relative to the row of `b` nearest to their mean.

    An actual row rather than the mean: equal rows become exact zeros, and one diverged client far
    away does not drag the origin, and with it the precision, off the others.
    """
    m, k, P = len(a), len(b), a.shape[1]
    mean = b.mean(0, dtype=torch.float64)
    away = mean.new_zeros(k)
    for cols in _blocks(P, k):
        away += (b[:, cols].double() - mean[cols]).square_().sum(1)
    origin = b[away.argmin()].double()
    a2, b2, d = mean.new_zeros(m), mean.new_zeros(k), mean.new_zeros(m, k)
    for cols in _blocks(P, m + k):
        x = a[:, cols].double() - origin[cols]
        y = x if a is b else b[:, cols].double() - origin[cols]
        d.addmm_(x, y.T)
        a2 += x.square().sum(1)
        b2 += y.square().sum(1)
    d.mul_(-2).add_(a2[:, None]).add_(b2)
    noise = 4 * math.sqrt(max(P, 1)) * torch.finfo(torch.float64).eps
    for i in _blocks(m, k):
        d[i].masked_fill_(d[i] <= noise * (a2[i, None] + b2), 0)
    return d


def _kl(p: Tensor, log_p: Tensor, log_q: Tensor) -> Tensor:
    # term by term: nearly equal predictions cancel before they are summed
    return torch.stack([(p * (log_p - q)).sum((1, 2)) for q in log_q], 1).clamp_min_(0)


def _unit(rows: Tensor) -> Tensor:
    """Rows of length one, whatever their scale; rows of zeros stay."""
    checks.rows(rows)
    if not rows.shape[1]:
        return rows
    largest = rows.abs().amax(1, keepdim=True)
    rows = rows / torch.where(largest > 0, largest, 1)
    return torch.nn.functional.normalize(rows, dim=1)


def _orthonormal(bases: Tensor) -> Tensor:
    """Orthonormal columns in float64 with the same spans; dependent columns become zero."""
    Q, R = torch.linalg.qr(bases.double())
    size = torch.linalg.vector_norm(bases.double(), dim=-2)[..., : R.shape[-2]]
    independent = R.diagonal(dim1=-2, dim2=-1).abs() > 1e-5 * size
    kept: Tensor = Q * independent[..., None, :]
    return kept


def _degrees(cos: Tensor) -> Tensor:
    return torch.rad2deg(cos.clamp(-1, 1).acos())


def _blocks(total: int, each: int) -> Iterator[slice]:
    """Slices over `total` things of `each` numbers that fit in a block of memory."""
    step = max(1, _BLOCK // max(each, 1))
    return (slice(i, min(i + step, total)) for i in range(0, total, step))


def _trajectories(T: Tensor) -> None:
    checks.shaped(T, "T", "n", "2", "C")
    if T.shape[1] != 2 or not T.shape[0] or not T.shape[2]:
        raise ValueError(f"T must be (n, 2, C), got {tuple(T.shape)}")


def _predictions(local: Tensor, centre: Tensor) -> None:
    checks.shaped(local, "local predictions", "m", "s", "C")
    checks.shaped(centre, "centres' predictions", "k", "s", "C")
    if local.shape[1:] != centre.shape[1:] or not len(centre) or not local.numel():
        raise ValueError(f"predictions {tuple(local.shape)} and {tuple(centre.shape)} do not match")
