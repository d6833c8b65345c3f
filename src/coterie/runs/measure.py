"""What a round is worth: the rows of the history that follow from one state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from coterie.core.loop import Scores, scheduled_rate
from coterie.core.model_kind import ModelKind, held_words
from coterie.core.types import Asked, Method, State
from coterie.runs import metrics
from coterie.runs.history import History, Row
from coterie.words.grouping import silhouette


def tested(
    state: State,
    scores: Scores,
    names: Sequence[str],
    sizes: Tensor,
    kind: ModelKind,
    before: History | None,
) -> list[Row]:
    """Accuracy and loss of every client, then of the federation, stage by stage.

    Who was not tested is left out of the federation's numbers; given the history `before`, it is
    counted by its last known ones.
    """
    rows = []
    for stage, accuracy, loss in zip(scores.stages, scores.accuracy, scores.loss, strict=True):
        both = {"accuracy": accuracy, "loss": loss}
        rows += of_clients(state, scores.clients, names, stage, both, kind)
        who = scores.clients
        if before is not None and scores.absent:
            who, (accuracy, loss) = filled(before, names, stage, who, both)
        if len(who):
            whole = metrics.summarise(accuracy, sizes[who]) | {"loss": float(loss.mean())}
            whole |= {"clients": float(len(who)), "absent": float(scores.absent)}
            rows += of_all(state, stage, whole)
    return rows


def filled(
    before: History,
    names: Sequence[str],
    stage: str,
    clients: Tensor,
    numbers: Mapping[str, Tensor],
) -> tuple[Tensor, Tensor]:
    """Those who were tested and those who once were, and their numbers, the last of each."""
    columns = []
    for metric, now in numbers.items():
        last = before.last_known(metric, stage)
        column = torch.tensor([last.get(name, torch.nan) for name in names], dtype=now.dtype)
        columns.append(column.index_copy(0, clients, now))
    table = torch.stack(columns)
    who = (~table[0].isnan()).nonzero().flatten()
    return who, table[:, who]


def traffic(
    state: State, asked: Sequence[Asked], names: Sequence[str], kind: ModelKind = "clustered"
) -> list[Row]:
    """Bytes to and from each client that took part, then of the federation, and what it trained."""
    ways, total = ("bytes_down", "bytes_up"), moved(asked, len(state.assign))
    there = total.sum(0).nonzero().flatten()
    each = dict(zip(ways, total[:, there], strict=True))
    whole = dict(zip(ways, total.sum(1).tolist(), strict=True))
    whole["samples"] = sum(a.samples for a in asked)
    return of_clients(state, there, names, "traffic", each, kind) + of_all(state, "traffic", whole)


def scheduled(state: State, method: Method, rounds: int) -> list[Row]:
    """The learning rate of the round behind, where a schedule changes it."""
    rate = scheduled_rate(method, state.round - 1, rounds) if state.round else None
    return [] if rate is None else of_all(state, "train", {"lr": rate})


def of_clients(
    state: State,
    clients: Tensor,
    names: Sequence[str],
    stage: str,
    numbers: Mapping[str, Tensor],
    kind: ModelKind,
) -> list[Row]:
    """The numbers of each of some clients, by name and with the model it holds."""
    held = held_words(kind, state.assign[clients].tolist())
    values = zip(*(x.tolist() for x in numbers.values()), strict=True)
    return [
        Row(state.round, names[i], c, stage, metric, value)
        for i, c, own in zip(clients.tolist(), held, values, strict=True)
        for metric, value in zip(numbers, own, strict=True)
    ]


def of_all(state: State, stage: str, numbers: Mapping[str, float]) -> list[Row]:
    """Numbers of the whole federation."""
    return [Row(state.round, "", "", stage, metric, value) for metric, value in numbers.items()]


def moved(asked: Sequence[Asked], n: int) -> Tensor:
    """(2, n) bytes down to and up from each client."""
    total = torch.zeros(2, n, dtype=torch.long)
    for a in asked:
        total.index_add_(1, a.clients, torch.stack([a.down, a.up]))
    return total


def questions(asked: Sequence[Asked]) -> dict[str, dict[str, float]]:
    """What was asked, task by task: of how many, the bytes each way, the time of all together."""
    found: dict[str, dict[str, float]] = {}
    for a in asked:
        sums = found.setdefault(a.task, {"clients": 0, "down": 0, "up": 0, "seconds": 0.0})
        sums["clients"] += len(a.clients)
        sums["down"] += int(a.down.sum())
        sums["up"] += int(a.up.sum())
        sums["seconds"] = round(sums["seconds"] + a.seconds, 4)
    return found


def grouped(
    state: State,
    before: Tensor | None,
    truth: Tensor | None,
    last: LastFit | None = None,
    kind: ModelKind = "clustered",
) -> list[Row]:
    """How many clusters there are, how they fit the planted groups, and who moved.

    Where nobody is grouped, only who has no model yet. Whoever measures round after round keeps one
    `LastFit` and hands it in each time.
    """
    found = {"unplaced": float(len(state.unplaced))}
    if kind == "clustered":
        found = dict(last.fit(state, truth) if last else fit(state, truth))
    # What a method tells of itself: how sure a cut was, whether a guard stepped in. By name: a
    # state that was saved and loaded has its memory in another order.
    found |= {
        name.removeprefix("report_"): float(t)
        for name, t in sorted(state.memory.items())
        if name.startswith("report_")
    }
    if before is not None and kind == "clustered":
        both = (before >= 0) & (state.assign >= 0)
        if both.any():
            found["churn"] = metrics.churn(before[both], state.assign[both])
    return of_all(state, "clusters", found)


def fit(state: State, truth: Tensor | None) -> dict[str, float]:
    """What follows from who is in which cluster: how many there are and how good they are."""
    placed = state.placed
    labels = state.assign[placed]
    found = {"clusters": float(len(labels.unique())), "unplaced": float(len(state.unplaced))}
    if truth is not None and len(placed):
        known = truth[placed]
        found["clusters_correct"] = float(metrics.clusters_correct(known, labels))
        found["ari"] = metrics.adjusted_rand(known, labels)
        found["nmi"] = metrics.nmi(known, labels)
    if (score := distinct(state)) is not None:
        found["silhouette"] = score
    return found


class LastFit:
    """The `fit` of the last round, which most rounds leave as it was: then it is not done again."""

    def __init__(self) -> None:
        self.distance: Tensor | None = None
        self.truth: Tensor | None = None
        self.assign: Tensor | None = None
        self.found: dict[str, float] = {}

    def fit(self, state: State, truth: Tensor | None) -> dict[str, float]:
        """What `fit` gives; distances and groups are known again by identity, clusters by value."""
        distance = state.memory.get("distance")
        known = self.assign is not None and torch.equal(self.assign, state.assign)
        if not (known and distance is self.distance and truth is self.truth):
            self.found = fit(state, truth)
            self.distance, self.truth, self.assign = distance, truth, state.assign
        return self.found


def distinct(state: State) -> float | None:
    """The mean silhouette of the clusters on the distances a method kept; None without any."""
    D = state.memory.get("distance")
    if D is None:
        return None
    who = state.memory.get("compared")  # some clients, where there are very many
    if who is None:
        if len(D) != len(state.assign):
            return None
        who = torch.arange(len(D))
    labels = state.assign[who]
    there = (labels >= 0) & ~D.diagonal().isnan()  # who missed the clustering call has no row
    if not there.any():
        return None
    if not there.all():
        D, labels = D[there][:, there], labels[there]
    return float(silhouette(D, labels))
