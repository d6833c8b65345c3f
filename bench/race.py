"""One workload: the contestants take turns, so that all of them meet the same machine."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.nn import functional as F

from bench.environments import Entry
from bench.processes import FailedError, Running
from bench.workloads import Array, Workload

Say = Callable[[str], None]
# How far from the plain loop models may be after the first round, as a share of the way they went.
SAME, SIMILAR = 0.02, 0.3


@dataclass
class Score:
    """What became of one contestant."""

    name: str
    seconds: list[float] = field(default_factory=list)
    peak: int = 0  # bytes
    away: float = float("nan")  # from the plain loop's models, as a share of the way those went
    loss: float = float("nan")  # after the round that is not counted
    first: float = float("nan")  # seconds of that round
    about: dict[str, str] = field(default_factory=dict)
    trouble: str = ""

    @property
    def median(self) -> float:
        """Seconds per round."""
        return statistics.median(self.seconds) if self.seconds else float("nan")


def race(
    workload: Workload,
    entries: dict[str, Entry],
    repeat: int,
    options: dict[str, list[str]],
    say: Say,
) -> dict[str, Score]:
    """The scores of all; who fails is out, and its score says why."""
    scores = {name: Score(name) for name in entries}
    runners: dict[str, Running] = {}

    def attempt(act: Callable[[str], None], name: str) -> None:
        try:
            act(name)
        except FailedError as why:
            scores[name].trouble = str(why)
            if name in runners:
                runners.pop(name).close()

    def start(name: str) -> None:
        runners[name] = Running(entries[name], workload, *options.get(name, []))
        scores[name].about = runners[name].about

    def warm(name: str) -> None:
        scores[name].first, models[name] = runners[name].checked(workload.warm_epochs)

    def turn(name: str) -> None:
        scores[name].seconds.append(runners[name].round(workload.epochs))
        scores[name].peak = runners[name].peak
        say(f"{workload.name} {name}: {scores[name].seconds[-1]:.3f} s")

    models: dict[str, list[Array]] = {}
    try:
        for name in entries:
            attempt(start, name)
        for name in list(runners):
            attempt(warm, name)
        for name in models:
            compare(scores[name], entries[name], workload, models)
        for _ in range(repeat):
            for name in list(runners):
                attempt(turn, name)
    finally:
        for runner in runners.values():
            runner.close()
    return scores


def compare(score: Score, entry: Entry, workload: Workload, models: dict[str, list[Array]]) -> None:
    """Whether it computes what the plain loop does: a fast wrong answer is no answer."""
    initial, mine = workload.initial(), models[score.name]
    score.loss = loss(workload, mine)
    if not score.loss < (before := loss(workload, initial)):
        score.trouble = f"the loss did not fall: {before:.3f}, then {score.loss:.3f}"
    if "plain" in models:
        score.away = distance(mine, models["plain"]) / distance(models["plain"], initial)
        if not score.away < (SAME if entry.same_order else SIMILAR):
            score.trouble = f"its model is {score.away:.1%} away from the plain loop's"


def distance(a: list[Array], b: list[Array]) -> float:
    """Euclidean, over all tensors."""
    return float(np.sqrt(sum(((s - t) ** 2).sum() for s, t in zip(a, b, strict=True))))


def loss(workload: Workload, weights: list[Array]) -> float:
    """Mean cross-entropy of the first clients' models on their samples."""
    net, losses = workload.network().eval(), []
    parameters = list(net.parameters())
    with torch.no_grad():
        for i in range(min(5, workload.clients)):
            first = workload.group(i) * len(parameters)
            mine = weights[first : first + len(parameters)]
            for parameter, values in zip(parameters, mine, strict=True):
                parameter.copy_(torch.from_numpy(values))
            x, y = map(torch.from_numpy, workload.client(i))
            losses.append(float(F.cross_entropy(net(x), y)))
    return statistics.fmean(losses)
