"""The metrics beside accuracy and loss: their names, and which way each of them is better."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

METRICS = {
    "balanced_accuracy": "mean over the classes that a client is tested on of the share right",
    "macro_f1": "mean F1 over the classes that its labels or its answers name",
    "auc": "area under the ROC curve, each of its classes against the rest, then their mean",
    "calibration_error": "how far confidence and accuracy are apart, over 15 bins (ECE)",
    "per_class_accuracy": "the share right of each class, over the samples of all clients",
}
CLASSES = "per_class_accuracy"  # counts of each class, not one number
MEASURED = ("accuracy", "loss")  # what is always measured
LESS_IS_BETTER = ("loss", "error", "deviance")  # how such names of scikit-learn's end


def short(name: str) -> str:
    """What records call a metric: of a function of one's own, its name without its module.

    >>> short("auc"), short("mine.metrics:top_two")
    ('auc', 'top_two')
    """
    return name.rpartition(":")[2]


def numbers(metrics: Sequence[str]) -> tuple[str, ...]:
    """Those of some metrics that are one number for each client."""
    return tuple(name for name in metrics if name != CLASSES)


def less_is_better(name: str) -> bool:
    """Whether a smaller value is the better one, by how scikit-learn names its metrics.

    >>> less_is_better("loss"), less_is_better("calibration_error_worst"), less_is_better("auc")
    (True, True, False)
    """
    return any(word in LESS_IS_BETTER for word in short(name).split("_"))


def objections(metrics: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Why metrics cannot be asked for together: each that is wrong, and the reason."""
    seen: set[str] = set()
    for name in metrics:
        called = short(name)
        if name in MEASURED:
            yield name, "is always measured"
        elif ":" not in name and name not in METRICS:
            yield name, "unknown metric"
        elif called in seen:
            yield name, f"{called} comes twice"
        elif ":" in name and (called in METRICS or called in MEASURED):
            yield name, f"{called} is a metric of coterie's: give the function another name"
        elif ":" in name and not called.isidentifier():
            yield name, "is no function"
        seen.add(called)
