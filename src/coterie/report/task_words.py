"""What clients are asked, in words: a run's events have the names of the tasks."""

from __future__ import annotations

TASKS = {
    "Train": "training",
    "Solver": "training",  # as folders of older versions have it
    "Score": "test",
    "Histogram": "label counts",
    "Trajectory": "gradient trajectory",
    "Basis": "data subspace",
    "Sparsity": "silent channels",
    "Losses": "loss of each model",
    "Importance": "share of each model",
    "Choose": "choice of a model, training",
    "Pulled": "training towards an anchor",
    "TrainBoth": "training, also of the own model",
    "HessianFree": "meta-training",
    "TrainAndGradients": "training, gradients of each class",
    "PrivateFirst": "training, private layers first",
    "Controlled": "training with control variates",
}


def task_words(task: str) -> str:
    """A task for people; one that is not ours keeps the name of its class.

    >>> task_words("Solver"), task_words("MyOwn")
    ('training', 'MyOwn')
    """
    return TASKS.get(task, task)
