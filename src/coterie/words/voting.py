"""AutoCFL's words: how long clients train before they are compared, and how they vote."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.core import checks
from coterie.words.grouping import canonical, components

ROWS = 512  # clients looked at together, so that memory stays bounded


def cumulative(history: Tensor) -> Tensor:
    """Each client's summed loss after every round (Eq. 7): (t, n) -> (t, n).

    >>> cumulative(torch.tensor([[1.0, 2.0], [1.0, 1.0]])).tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    checks.rows(history, "history")
    return history.cumsum(0)


def variance(losses: Tensor) -> float:
    """The population variance over clients of their cumulative losses: (n,) -> a number.

    >>> variance(torch.tensor([1.0, 3.0]))
    1.0
    """
    checks.shaped(losses, "losses", "n")
    return float(losses.double().var(correction=0)) if len(losses) else 0.0


def adjust_epochs(
    epochs: Tensor,
    total: Tensor,
    loss: Tensor,
    sizes: Tensor,
    alpha: float = 0.5,
    only_smaller: bool = False,
) -> Tensor:
    """Next round's epochs as real numbers (Eq. 8, 9): all (n,) -> (n,).

    A client whose summed loss `total` exceeds that of the largest client s* (the first, among
    equals) gains (alpha n_s*/n_m)^rho epochs, rho = min(1, loss_m/loss_s*). `only_smaller` leaves
    clients as large as s* alone. Epochs never fall, and s* never gains.

    >>> e, lost = torch.tensor([8.0, 8.0, 8.0]), torch.tensor([1.0, 1.0, 2.0])
    >>> adjust_epochs(e, lost, lost, torch.tensor([9, 9, 3])).tolist()
    [8.0, 8.0, 9.5]
    """
    n = len(epochs)
    for name, x in (("epochs", epochs), ("total", total), ("loss", loss), ("sizes", sizes)):
        checks.weights(x, name, n)
    if not n or float(sizes.min()) <= 0:
        raise ValueError("sizes must be positive: a client without samples does not train")
    if not alpha > 0:
        raise ValueError(f"alpha must be positive, got {alpha}")
    size = sizes.double()
    s = size.argmax()
    rho = (loss / loss[s]).clamp(max=1) if loss[s] > 0 else torch.ones_like(loss)
    behind = total > total[s]
    if only_smaller:
        behind &= size < size[s]
    gain = ((alpha * size[s] / size) ** rho).to(epochs.dtype)
    return torch.where(behind, epochs + gain, epochs)


def whole_epochs(epochs: Tensor) -> Tensor:
    """What is run: epochs rounded half up, at least one: (n,) -> (n,) long.

    >>> whole_epochs(torch.tensor([0.2, 5.5, 6.4])).tolist()
    [1, 6, 6]
    """
    checks.shaped(epochs, "epochs", "n")
    return (epochs + 0.5).floor().long().clamp_min(1)


def should_stop(variances: Tensor, latest: int = 10) -> bool:
    """Whether the adjusted rounds end here, from the variance of each round so far: (t,).

    When it rose after it had fallen (an elbow); from round five on also when the last five rise
    along a line; in round `latest` in any case.

    >>> should_stop(torch.tensor([5.0, 4.0, 6.0])), should_stop(torch.tensor([5.0, 6.0, 7.0]))
    (True, False)
    """
    checks.shaped(variances, "variances", "t")
    checks.count(latest, "latest")
    V = variances.double()
    t = len(V)
    elbow = t >= 3 and bool(V[-2] < V[-3]) and bool(V[-1] > V[-2])
    rising = t >= 5 and float(V[-5:] @ torch.arange(-2, 3).double()) > 0
    return elbow or rising or t >= latest


def demarcate(distance: Tensor, include_self: bool = False) -> Tensor:
    """Whom each client counts as its own: (n, n) -> (n, n) bool, row m the group of m.

    The others, nearest first, up to the widest gap between neighbours (the first among equals),
    and m itself. Everybody when there is no gap. `include_self` lets the client's own 0 take part
    in the gaps.

    >>> x = torch.tensor([0.0, 1.0, 9.0])
    >>> demarcate((x[:, None] - x).abs()).int().tolist()
    [[1, 1, 0], [1, 1, 0], [0, 1, 1]]
    """
    checks.distances(distance)
    n = len(distance)
    if n < (2 if include_self else 3):  # there is no gap
        return torch.ones(n, n, dtype=torch.bool)
    groups = torch.empty(n, n, dtype=torch.bool)
    for who in torch.arange(n).split(ROWS):
        groups[who] = _nearby(distance[who], who, include_self)
    return groups


def _nearby(distance: Tensor, who: Tensor, include_self: bool) -> Tensor:
    """The rows of `demarcate` for some clients, whose distances to all these are: (m, n)."""
    n = distance.shape[1]
    own = torch.zeros(len(who), n, dtype=torch.bool).scatter_(1, who[:, None], True)
    # sorted in the given precision; the own place comes first whatever else is at distance 0
    near, order = distance.masked_fill(own, -1).sort(dim=1, stable=True)
    near[:, 0] = 0
    if not include_self:
        near, order = near[:, 1:], order[:, 1:]
    widest, at = near.diff(dim=1).max(1)  # the first among equals
    inside = torch.arange(order.shape[1]) <= at[:, None]
    inside |= (widest <= 0)[:, None]
    return own.scatter_(1, order, inside | (order == who[:, None]))


def scores(groups: Tensor, sizes: Tensor, weighted: bool = True) -> Tensor:
    """What each client's votes add up to (Eq. 11, 12): (n, n) bool, (n,) -> (n, n) float64.

    `S[n, c]`: every group with n in it votes for its largest member c (the first among equals),
    with n's share of the group's samples, or with 1 when not `weighted`.

    >>> scores(torch.ones(2, 2, dtype=torch.bool), torch.tensor([1, 3])).tolist()
    [[0.0, 0.5], [0.0, 1.5]]
    """
    chosen, S = _tally(groups, sizes, weighted)
    n = len(groups)
    return torch.zeros(n, n, dtype=torch.float64).index_copy_(1, chosen, S)


def _tally(groups: Tensor, sizes: Tensor, weighted: bool) -> tuple[Tensor, Tensor]:
    """The clients that anybody votes for, increasing, (r,), and the votes they get, (n, r)."""
    n = len(groups)
    if groups.dtype != torch.bool or groups.shape != (n, n) or not groups.any(1).all():
        raise ValueError("groups must be (n, n) bool with at least one member in each row")
    checks.weights(sizes, "sizes", n)
    if float(sizes.min()) <= 0:
        raise ValueError("sizes must be positive: a client without samples has no vote")
    size = sizes.double()
    largest = torch.cat([(rows * size).argmax(1) for rows in groups.split(ROWS)])
    chosen, column = largest.unique(return_inverse=True)
    S = torch.zeros(len(chosen), n, dtype=torch.float64)
    for rows, to in zip(groups.split(ROWS), column.split(ROWS), strict=True):
        votes = rows * size  # (rows, n): what the members of each group hold
        S.index_add_(0, to, votes / votes.sum(1, keepdim=True) if weighted else rows.double())
    return chosen, S.T


@dataclass(frozen=True)
class Vote:
    """Groups, and the representative each client voted for in the end."""

    labels: Tensor  # (n,)
    representatives: Tensor  # (n,)


def vote(
    distance: Tensor,
    sizes: Tensor,
    weighted: bool = True,
    chain: bool = True,
    include_self: bool = False,
) -> Vote:
    """AutoCFL's grouping by weighted votes (Eq. 11-13): (n, n), (n,) -> Vote.

    Each client goes where its votes add up highest (the first within 1e-12). `chain` puts clients
    in one group that are linked through representatives; without it a group is those with the same
    representative. Two clients are never separated. See `demarcate` for `include_self`.

    >>> x = torch.tensor([0.0, 1.0, 2.0, 50.0, 51.0])
    >>> vote((x[:, None] - x).abs(), torch.full((5,), 8)).labels.tolist()
    [0, 0, 0, 1, 1]
    """
    chosen, S = _tally(demarcate(distance, include_self), sizes, weighted)
    top = S.amax(1, keepdim=True)
    best = chosen[(top - S <= 1e-12).int().argmax(1)]
    return Vote(components(best) if chain else canonical(best), best)
