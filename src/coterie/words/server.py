"""What a server makes of replies: a mean of them, and a step towards it by its own optimiser.

Hsu, Qi, Brown: Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification. 2019. (FedAvgM)
Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: Adaptive Federated Optimization.
ICLR 2021. (FedAdagrad, FedAdam, FedYogi)
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from coterie.core.bounds import Decay, Minority, Positive, dataclass
from coterie.core.moments import MOMENT
from coterie.core.types import Layout, Replies, State
from coterie.words import mixing
from coterie.words.robust import merge_robustly
from coterie.words.suspicion import watch

M, V = f"{MOMENT}m", f"{MOMENT}v"  # where a state remembers the moments, a row for each model


class Moved(NamedTuple):
    """A step of the server, and the moments after it."""

    step: Tensor
    m: Tensor
    v: Tensor


@dataclass(frozen=True)
class ServerOptimiser:
    """How a model becomes an average of what its clients trained, and how far it goes towards it.

    The difference between the two, delta, is to the server what a gradient is to a client. Moments
    belong to a model: each cluster has its own. They lie in the state, so that a run goes on from a
    checkpoint with them.
    """

    kind: Literal["none", "momentum", "adagrad", "adam", "yogi"] = "none"
    lr: Positive | None = None  # of the server's step; not set: 1 with momentum, else 0.1
    beta1: Decay = 0.9  # of the running mean of the differences; of momentum, the momentum
    beta2: Decay = 0.99  # adam, yogi: of their running square
    tau: Positive = 1e-3  # added to its root: the smaller, the more adaptive
    merge: Literal["mean", "trimmed-mean", "median", "multi-krum", "norm-clip"] = "mean"
    byzantine: Minority = 0.2  # share of each cluster's answers that a robust merge withstands
    flag: bool = False  # look for suspicious clients; a robust merge always does

    @property
    def rate(self) -> float:
        """The learning rate."""
        return self.lr or (1.0 if self.kind == "momentum" else 0.1)

    @property
    def robust(self) -> bool:
        """Whether it withstands hostile answers."""
        return self.merge != "mean"

    def merged(self, state: State, w: Replies, columns: Tensor | slice | None = None) -> State:
        """Each model becomes the mean of what its own clients trained, by samples or robustly.

        A model nobody answered for stays as it was. With `columns`, only these were sent and
        change.
        """
        if not w:
            return state
        if self.flag or self.robust:
            state = watch(state, w, columns)
        if not self.robust:
            return mixing.merge(state, w, columns)
        return merge_robustly(state, w, self.merge, self.byzantine, columns)

    def move(self, delta: Tensor, m: Tensor, v: Tensor) -> Moved:
        """The step and the next moments: FedAvgM's, or Algorithm 2 of Reddi et al.

        >>> one = torch.ones(1)
        >>> ServerOptimiser("momentum", beta1=0.5).move(one, one, one).step.tolist()
        [1.5]
        >>> adagrad = ServerOptimiser("adagrad", lr=1.0, beta1=0.0, tau=0.5)
        >>> adagrad.move(3 * one, one, 7 * one)
        Moved(step=tensor([0.6667]), m=tensor([3.]), v=tensor([16.]))
        """
        if self.kind == "momentum":
            m = self.beta1 * m + delta
            return Moved(self.rate * m, m, v)
        m = self.beta1 * m + (1 - self.beta1) * delta
        square = delta.square()
        if self.kind == "adagrad":
            v = v + square
        elif self.kind == "adam":
            v = self.beta2 * v + (1 - self.beta2) * square
        else:
            v = v - (1 - self.beta2) * square * (v - square).sign()
        return Moved(self.rate * m / (v.sqrt() + self.tau), m, v)

    def advance(self, before: State, average: State, layout: Layout) -> State:
        """The state after the server's step: each model from where it was towards its average.

        `average` is what a method would go on with, its models row for row those of `before`. One
        that is as it was, for nobody came, stays so, and its moments too. Running statistics are
        no directions to follow: they are averaged.
        """
        if self.kind == "none":
            return average
        if average.k != before.k:
            raise ValueError(f"{before.k} models became {average.k} by being averaged")
        learning = slice(0, layout.trainable)
        mean = average.models[:, learning]
        delta = mean - before.models[:, learning]  # (k, trainable)
        m, v = moments(average, delta, M, 0.0), moments(average, delta, V, self.tau**2)
        moved = self.move(delta, m, v)
        came = delta.any(1, keepdim=True)
        models = average.models.clone()
        # From the average back: a step all the way is the average to the bit.
        models[:, learning] = torch.where(came, mean - (delta - moved.step), mean)
        kept = {M: torch.where(came, moved.m, m)}
        if self.kind != "momentum":
            kept[V] = torch.where(came, moved.v, v)
        return average.hold(models, **kept)


def moments(state: State, like: Tensor, name: str, start: float) -> Tensor:
    """(k, trainable) what a state remembers of its models' moments; of a new one, the start."""
    known = state.memory.get(name, like[:0])
    return torch.cat([known, torch.full_like(like[len(known) :], start)])
