"""When a run ends early and which of its rounds is taken, as data; `runs/choosing.py` decides."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.core.bounds import Whole, dataclass
from coterie.core.metric_names import CLASSES, less_is_better, short

ACCURACY = ("mean", "weighted", "worst", "bottom_5", "bottom_10pct")  # over clients
FURTHER = ("mean", "weighted", "worst")  # of every other metric


@dataclass(frozen=True)
class Stop:
    """The best round on validation data is taken, and training may end when none comes after it."""

    patience: Whole = 0  # rounds without a better one after which training ends; 0: never
    metric: str = "accuracy"  # what is better, of validation data: accuracy, loss, auc_worst, ...


def choosable(metrics: Sequence[str] = ()) -> tuple[str, ...]:
    """The numbers of a whole federation that can be chosen by, where these `metrics` are measured.

    >>> choosable(["auc"])[-4:]
    ('loss', 'auc_mean', 'auc_weighted', 'auc_worst')
    """
    found = [*(f"accuracy_{over}" for over in ACCURACY), "loss"]
    for name in map(short, metrics):
        found += [name] if name == CLASSES else [f"{name}_{over}" for over in FURTHER]
    return tuple(found)


def full(metric: str) -> str:
    """A metric under the name that metrics.csv has for it; of a bare one, the mean over clients.

    >>> full("accuracy"), full("worst"), full("loss"), full("auc"), full("auc_worst")
    ('accuracy_mean', 'accuracy_worst', 'loss', 'auc_mean', 'auc_worst')
    """
    name = short(metric)
    if name in ACCURACY:
        return f"accuracy_{name}"
    whole = name in ("loss", CLASSES) or name.endswith(tuple(f"_{over}" for over in ACCURACY))
    return name if whole else f"{name}_mean"


def value(metric: str, number: float) -> float:
    """A number of a metric, turned so that more is better."""
    return -number if less_is_better(full(metric)) else number
