"""Further metrics as rows of the history: of each client, of the federation, and of each class."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from coterie.core.loop import Scores
from coterie.core.metric_names import CLASSES, less_is_better, numbers, short
from coterie.core.model_kind import ModelKind, held_words
from coterie.core.types import State
from coterie.runs import metrics
from coterie.runs.history import History, Row
from coterie.runs.measure import filled, of_all, of_clients


def tested(
    state: State,
    scores: Scores,
    names: Sequence[str],
    sizes: Tensor,
    kind: ModelKind,
    before: History | None,
    asked: Sequence[str],
) -> list[Row]:
    """What was `asked` for beside accuracy and loss, stage by stage; nothing if nothing was.

    Who has no value of a metric has no row, and is left out of the federation's; given the history
    `before`, who was not tested is counted by its last known value.
    """
    rows: list[Row] = []
    if not asked or not len(scores.clients):
        return rows
    for s, stage in enumerate(scores.stages):
        for i, name in enumerate(map(short, numbers(asked))):
            column = scores.extra["numbers"][:, s, i]
            there = ~column.isnan()
            who, values = scores.clients[there], column[there]
            rows += of_clients(state, who, names, stage, {name: values}, kind)
            if before is not None and scores.absent:
                who, (values,) = filled(before, names, stage, who, {name: values})
            if len(who):
                rows += of_all(state, stage, summarised(name, values, sizes[who]))
        if CLASSES in asked:
            counts = scores.extra["classes"][:, s]
            rows += by_client(state, scores.clients, names, stage, counts, kind)
            rows += of_all(state, stage, pooled(counts.sum(0)))
    return rows


def summarised(name: str, values: Tensor, sizes: Tensor) -> dict[str, float]:
    """One metric of some clients, over all of them.

    >>> import torch
    >>> summarised("auc", torch.tensor([0.5, 1.0]), torch.tensor([3, 1]))["auc_weighted"]
    0.625
    """
    return {
        f"{name}_mean": metrics.mean(values),
        f"{name}_std": metrics.std(values),
        f"{name}_weighted": metrics.weighted(values, sizes),
        f"{name}_worst": float(values.max()) if less_is_better(name) else metrics.worst(values),
        f"{name}_clients": float(len(values)),
    }


def by_client(
    state: State,
    clients: Tensor,
    names: Sequence[str],
    stage: str,
    counts: Tensor,  # (m, 2, K) right and wrong
    kind: ModelKind,
) -> list[Row]:
    """How many samples of each class are right and wrong at each client that has some of it."""
    held = held_words(kind, state.assign[clients].tolist())
    return [
        Row(state.round, names[i], word, stage, f"class_{k}_{what}", float(value))
        for i, word, own in zip(clients.tolist(), held, counts.tolist(), strict=True)
        for k, both in enumerate(zip(*own, strict=True))
        if any(both)
        for what, value in zip(("right", "wrong"), both, strict=True)
    ]


def pooled(counts: Tensor) -> dict[str, float]:
    """The accuracy of each class over the samples of all clients, (2, K), and their plain mean."""
    tested = counts.sum(0)
    there = tested.nonzero().flatten()
    share = counts[0, there].double() / tested[there]
    each = {f"class_{k}_accuracy": float(v) for k, v in zip(there.tolist(), share, strict=True)}
    return each | ({CLASSES: float(share.mean())} if len(there) else {})
