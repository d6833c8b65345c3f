"""What a run was worth: accuracy, fairness, cost, and how well groups were found.

Accuracies are one number per client. NaN means that a client has no test samples, hence no
accuracy (which is not accuracy 0): such clients are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


def mean(accuracy: Tensor) -> float:
    """The plain mean over clients, NaN if none was tested.

    >>> mean(torch.tensor([0.5, 1.0, float("nan")]))
    0.75
    """
    known = _tested(accuracy)
    return float(known.mean()) if len(known) else float("nan")


def std(accuracy: Tensor) -> float:
    """The population deviation over clients.

    >>> std(torch.tensor([0.5, 1.0]))
    0.25
    """
    known = _tested(accuracy)
    return float(known.std(correction=0)) if len(known) else float("nan")


def bottom_k(accuracy: Tensor, k: int = 5) -> float:
    """The mean of the k worst clients, of all where there are fewer.

    >>> bottom_k(torch.tensor([0.5, 0.25, 1.0]), 2)
    0.375
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    known = _tested(accuracy)
    return float(known.sort().values[:k].mean()) if len(known) else float("nan")


def worst(accuracy: Tensor) -> float:
    """The worst client.

    >>> worst(torch.tensor([0.5, 0.25, 1.0]))
    0.25
    """
    return bottom_k(accuracy, 1)


def bottom_share(accuracy: Tensor, share: float = 0.1) -> float:
    """The mean of the worst share of clients, at least one.

    >>> bottom_share(torch.arange(20) / 32)
    0.015625
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must lie in (0, 1], got {share}")
    return bottom_k(accuracy, max(1, round(share * len(_tested(accuracy)))))


def weighted(accuracy: Tensor, sizes: Tensor) -> float:
    """The mean over clients, each counted by its size.

    >>> weighted(torch.tensor([0.0, 1.0]), torch.tensor([1, 3]))
    0.75
    """
    if accuracy.shape != sizes.shape:
        raise ValueError(f"{len(accuracy)} accuracies, but {len(sizes)} sizes")
    known = _tested(accuracy)
    size = sizes.double()[~accuracy.isnan()]
    if len(size) and (float(size.min()) < 0 or not torch.isfinite(size).all()):
        raise ValueError("sizes must be finite and not negative")
    return float(known @ size / size.sum()) if float(size.sum()) > 0 else float("nan")


def jain(accuracy: Tensor) -> float:
    """Jain's fairness index in [1/n, 1]: (sum a)^2 / (n sum a^2); 1 when all are alike.

    >>> jain(torch.tensor([1.0, 0.0])), jain(torch.tensor([0.0, 0.0]))
    (0.5, 1.0)
    """
    known = _tested(accuracy)
    if not len(known):
        return float("nan")
    squares = float(known.square().sum())
    return float(known.sum()) ** 2 / (len(known) * squares) if squares > 0 else 1.0


def summarise(accuracy: Tensor, sizes: Tensor) -> dict[str, float]:
    """Everything about one round's accuracies under its own name.

    >>> found = summarise(torch.tensor([0.5, 1.0]), torch.tensor([3, 1]))
    >>> found["accuracy_mean"], found["accuracy_weighted"], found["accuracy_worst"]
    (0.75, 0.625, 0.5)
    """
    return {
        "accuracy_mean": mean(accuracy),
        "accuracy_std": std(accuracy),
        "accuracy_weighted": weighted(accuracy, sizes),
        "accuracy_worst": worst(accuracy),
        "accuracy_bottom_5": bottom_k(accuracy, 5),
        "accuracy_bottom_10pct": bottom_share(accuracy, 0.1),
        "accuracy_jain": jain(accuracy),
    }


def top_k_mean(series: Sequence[float], k: int = 5) -> float:
    """The mean of the k best rounds, of all where there are fewer.

    >>> top_k_mean([0.25, 0.75, 0.5], 2)
    0.625
    """
    return _mean(sorted(_rounds(series), reverse=True), k)


def in_top_k(series: Sequence[float], other: Sequence[float], k: int = 5) -> float:
    """The mean of another number over the k rounds in which the series is best.

    >>> in_top_k([0.25, 0.75, 0.5], [1.0, 2.0, 3.0], 2)
    2.5
    """
    order = np.argsort(-np.asarray(series, dtype=float), kind="stable")  # NaN comes last
    return _mean([float(other[i]) for i in order], k)


def last_k_mean(series: Sequence[float], k: int) -> float:
    """The mean of the last k rounds, of all where there are fewer.

    >>> last_k_mean([0.25, 0.75, 0.5], 2)
    0.625
    """
    return _mean(_rounds(series)[::-1], k)


def rounds_to_target(series: Sequence[float], target: float) -> int | None:
    """The first round, counted from 1, that reaches the target; None if none does.

    >>> rounds_to_target([0.25, 0.5, 0.75], 0.5), rounds_to_target([0.25], 0.5)
    (2, None)
    """
    return next((t for t, value in enumerate(series, 1) if value >= target), None)


def comm_per_client_mb(
    n_params: int,
    rounds: float,
    fraction: float,
    down_models: float = 1,
    up_models: float = 1,
    bits: int = 32,
) -> float:
    """Megabits an average client moves: rounds x share of rounds it takes part in x models.

    >>> comm_per_client_mb(62_006, rounds=200, fraction=0.1)
    79.36768
    """
    return rounds * fraction * (down_models + up_models) * n_params * bits / 1e6


def clusters_correct(true: Tensor, pred: Tensor) -> int:
    """How many clients are in the right group under the best one-to-one matching of groups.

    (n,), (n,) -> a count. A client that is not placed (-1) is never right.

    >>> clusters_correct(torch.tensor([0, 0, 1, 1]), torch.tensor([5, 5, 5, 2]))
    3
    """
    true, pred = _both(true, pred)
    placed = pred >= 0
    if not placed.any():
        return 0
    table = contingency(true[placed].numpy(), pred[placed].numpy())
    return int(table[best_pairs(table)].sum())


def best_pairs(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The one-to-one pairs of rows and columns that are worth most: (a, b) -> two (min(a, b),).

    >>> [i.tolist() for i in best_pairs(np.array([[1, 5], [4, 0]]))]
    [[0, 1], [1, 0]]
    """
    if len(table) > len(table.T):
        return best_pairs(table.T)[::-1]
    best = table.argmax(axis=1)
    if len(np.unique(best)) == len(table):  # nothing is worth more than everybody's favourite
        return np.arange(len(table)), best
    from scipy.optimize import linear_sum_assignment  # here: scipy takes a while to import

    rows, columns = linear_sum_assignment(table, maximize=True)
    return rows, columns


def churn(previous: Tensor, current: Tensor) -> float:
    """The share of clients whose group changed, whatever the groups are called: in [0, 1].

    (n,), (n,) -> a number, over the clients that were placed both times; 0 if there are none.

    >>> churn(torch.tensor([0, 0, 1, 1]), torch.tensor([1, 1, 0, 1]))
    0.25
    """
    previous, current = _both(previous, current)
    both = (previous >= 0) & (current >= 0)
    n = int(both.sum())
    if torch.equal(previous[both], current[both]):  # the usual case; matching groups is k^3
        return 0.0
    return 1 - clusters_correct(previous[both], current[both]) / n if n else 0.0


def adjusted_rand(true: Tensor, pred: Tensor) -> float:
    """The adjusted Rand index: 1 for the same groups, about 0 for groups drawn at random.

    (n,), (n,) -> a number. Clients that are not placed (-1) are each alone.

    >>> adjusted_rand(torch.tensor([0, 0, 1, 1]), torch.tensor([1, 1, 0, 0]))
    1.0
    """
    table = contingency(*(_alone(x) for x in _both(true, pred)))
    n, squares = int(table.sum()), int((table**2).sum())
    rows, columns = (int((table.sum(axis=a) ** 2).sum()) for a in (1, 0))
    both, first, second = squares - n, rows - squares, columns - squares  # ordered pairs that are
    neither = n * n - rows - columns + squares  # together in both, in one alone, in none
    if not first and not second:
        return 1.0
    chance = (both + first) * (first + neither) + (both + second) * (second + neither)
    return 2.0 * (both * neither - first * second) / chance


def nmi(true: Tensor, pred: Tensor) -> float:
    """Normalised mutual information in [0, 1], by the mean of the two entropies.

    (n,), (n,) -> a number. Clients that are not placed (-1) are each alone. Two single groups are
    the same: 1.

    >>> nmi(torch.tensor([0, 0, 1, 1]), torch.tensor([1, 1, 0, 0]))
    1.0
    """
    table = contingency(*(_alone(x) for x in _both(true, pred)))
    rows, columns, n = table.sum(axis=1), table.sum(axis=0), table.sum()
    i, j = table.nonzero()
    if len(i) == len(rows) == len(columns):
        return 1.0
    count = table[i, j]
    shared = np.sum(count / n * np.log(n * count / (rows[i] * columns[j])))
    entropies = (np.sum(x / n * np.log(n / x)) for x in (rows, columns))
    return float(max(shared, 0.0) / (sum(entropies) / 2))


def contingency(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """How many are in each group of the one and each of the other: (n,), (n,) -> (ka, kb).

    >>> contingency(np.array([0, 0, 1]), np.array([5, 7, 7])).tolist()
    [[1, 1], [0, 1]]
    """
    (left, i), (right, j) = (np.unique(x, return_inverse=True) for x in (a, b))
    cells = np.bincount(i * len(right) + j, minlength=len(left) * len(right))
    return cells.reshape(len(left), len(right))


@dataclass(frozen=True)
class PerClient:
    """One number per client.

    >>> accuracy = PerClient({"a": 0.5, "b": 1.0})
    >>> accuracy.mean(), accuracy.worst(), accuracy["b"]
    (0.75, 0.5, 1.0)
    """

    values: Mapping[str, float]

    def __getitem__(self, client: str | int) -> float:
        return self.values[str(client)]

    def __len__(self) -> int:
        return len(self.values)

    def mean(self) -> float:
        """The plain mean over clients."""
        return float(self._tensor().mean())

    def std(self) -> float:
        """The deviation over clients (population)."""
        return float(self._tensor().std(correction=0))

    def worst(self, share: float = 0.0) -> float:
        """The worst client, or the mean of the worst share of clients."""
        count = max(1, round(share * len(self)))
        return bottom_k(self._tensor(), count)

    def _tensor(self) -> Tensor:
        return torch.tensor(list(self.values.values()), dtype=torch.float64)


def _tested(accuracy: Tensor) -> Tensor:
    """The accuracies there are, in float64."""
    if accuracy.ndim != 1:
        raise ValueError(f"accuracy must be (n,), got {tuple(accuracy.shape)}")
    if accuracy.isinf().any():
        raise ValueError("accuracy holds infinite numbers")
    return accuracy.double()[~accuracy.isnan()]


def _rounds(series: Sequence[float]) -> list[float]:
    """The rounds somebody was tested in."""
    if not len(series):
        raise ValueError("there is no round to take the mean of")
    return [float(v) for v in series if not np.isnan(v)] or [float("nan")]


def _mean(values: list[float], k: int) -> float:
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    return float(np.mean(values[:k]))


def _both(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    if a.ndim != 1 or a.shape != b.shape or a.is_floating_point() or b.is_floating_point():
        raise ValueError(f"labels must be two (n,) of whole numbers: {a.shape} and {b.shape}")
    return a, b


def _alone(labels: Tensor) -> np.ndarray:
    """Labels in which every -1 is a group of its own."""
    own = torch.arange(len(labels)) + (int(labels.max()) + 1 if len(labels) else 0)
    return torch.where(labels < 0, own, labels).numpy()
