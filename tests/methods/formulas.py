"""Small networks whose losses, gradients and steps are a few lines of NumPy, in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from coterie.core.client import Client
from coterie.core.layout import Layout
from coterie.core.loop import run
from coterie.core.types import State
from coterie.engines.front import Front
from tests.tiny import CLASSES, FEATURES, clients, network

Row = NDArray[np.float64]
HIDDEN = 8
HEAD = slice(HIDDEN * (FEATURES + 1), None)  # of a row of `tests.tiny.network`
BODY = slice(0, HEAD.start)


def trained(method: Any, fed: Front, rounds: int = 3) -> State:
    return list(run(method, fed, rounds))[-1]


def own(fed: Front, key: str = "private") -> dict[int, torch.Tensor]:
    """What each client keeps to itself."""
    return {i: kept[key] for i, kept in fed.memory.items()}


def front(net: nn.Module, people: Sequence[Client] | None = None, **how: Any) -> Front:
    return Front(
        clients() if people is None else people, Layout(net), classes=CLASSES, seed=7, **how
    )


def logistic(**how: Any) -> Front:
    """A federation of logistic regression."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return front(nn.Linear(FEATURES, CLASSES), **how)


def two_layers(**how: Any) -> Front:
    """A federation of networks with a body and a head."""
    return front(network(), **how)


def initial(fed: Front) -> Row:
    return fed.layout.initial.double().numpy()


def data(who: Client) -> tuple[Row, NDArray[np.int64]]:
    return who.x.double().numpy(), who.y.numpy()


def sizes(fed: Front) -> Row:
    n = np.array([len(who) for who in fed.population], float)
    return np.asarray(n / n.sum())


def log_softmax(z: Row) -> Row:
    z = z - z.max(1, keepdims=True)
    return np.asarray(z - np.log(np.exp(z).sum(1, keepdims=True)))


def linear(row: Row, x: Row) -> Row:
    """The logits of logistic regression."""
    W, b = row[: CLASSES * FEATURES].reshape(CLASSES, FEATURES), row[CLASSES * FEATURES :]
    return np.asarray(x @ W.T + b)


def losses(row: Row, who: Client) -> Row:
    """The cross-entropy of a linear model on each sample."""
    x, y = data(who)
    return np.asarray(-log_softmax(linear(row, x))[np.arange(len(y)), y])


def slope(row: Row, who: Client, weights: Row | float = 1.0) -> Row:
    """The gradient of the mean cross-entropy of a linear model, with a weight for each sample."""
    x, y = data(who)
    p = np.exp(log_softmax(linear(row, x)))
    p[np.arange(len(y)), y] -= 1
    p *= np.reshape(np.broadcast_to(weights, len(y)), (-1, 1))
    return np.concatenate([(p.T @ x / len(y)).ravel(), p.mean(0)])


def layers(row: Row) -> tuple[Row, Row, Row, Row]:
    a, b = HIDDEN * FEATURES, HEAD.start + CLASSES * HIDDEN
    return (
        row[:a].reshape(HIDDEN, FEATURES),
        row[a : HEAD.start],
        row[HEAD.start : b].reshape(CLASSES, HIDDEN),
        row[b:],
    )


def features(row: Row, who: Client) -> Row:
    """What enters the head of a network of two layers."""
    W, b, _, _ = layers(row)
    return np.maximum(data(who)[0] @ W.T + b, 0)


def slope2(row: Row, who: Client, lam: float = 0.0, goals: Row | None = None) -> Row:
    """The gradient of cross-entropy + lam mean (z - goal of the label)^2, for two layers."""
    x, y = data(who)
    _, _, V, c = layers(row)
    z = features(row, who)
    p = np.exp(log_softmax(z @ V.T + c))
    p[np.arange(len(y)), y] -= 1
    p /= len(y)
    dz = p @ V
    if goals is not None:
        dz = dz + lam * 2 * (z - goals[y]) / z.size
    dz = dz * (z > 0)
    return np.concatenate([(dz.T @ x).ravel(), dz.sum(0), (p.T @ z).ravel(), p.sum(0)])


def close(a: Any, b: Any, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=atol)
