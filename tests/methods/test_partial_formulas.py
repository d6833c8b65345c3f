"""FedPer, FedBN and FedBABU beside their formulas, computed in NumPy."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from coterie.methods.fedbabu import FedBABU
from coterie.methods.partial import FedBN, FedPer
from coterie.tasks.solver import Solver
from tests.methods.formulas import (
    BODY,
    HEAD,
    Row,
    close,
    data,
    front,
    initial,
    log_softmax,
    own,
    sizes,
    slope2,
    trained,
    two_layers,
)
from tests.tiny import CLASSES, FEATURES

WHOLE = Solver(lr=0.2, steps=2, batch=0)  # all data at once: there is no order to reproduce


def test_fedper_is_its_formulas() -> None:
    fed = two_layers()
    end = trained(FedPer(WHOLE), fed, 2)
    body = initial(fed)[BODY]
    heads = [initial(fed)[HEAD] for _ in fed.population]
    for _ in range(2):
        rows = []
        for i, who in enumerate(fed.population):
            w = np.concatenate([body, heads[i]])
            for _ in range(2):
                w = w - 0.2 * slope2(w, who)
            heads[i] = w[HEAD]
            rows.append(w[BODY])
        body = sizes(fed) @ rows
    close(end.models[0][BODY], body)
    for i, head in enumerate(heads):
        close(own(fed)[i], head)


def test_fedbabu_is_its_formulas() -> None:
    fed = two_layers()
    method = FedBABU(WHOLE, tune_epochs=3)
    end = trained(method, fed, 2)
    w0, body = initial(fed), initial(fed)[BODY]
    for _ in range(2):
        rows = []
        for who in fed.population:
            w = np.concatenate([body, w0[HEAD]])
            for _ in range(2):
                w[BODY] -= 0.2 * slope2(w, who)[BODY]
            rows.append(w[BODY])
        body = sizes(fed) @ rows
    close(end.models[0], np.concatenate([body, w0[HEAD]]))
    used = fed.at(2, "evaluate").ask(end.placed, method.score.held, end).values
    for row, who in zip(used, fed.population, strict=True):
        w = np.concatenate([body, w0[HEAD]])
        for _ in range(3):
            w[HEAD] -= 0.2 * slope2(w, who)[HEAD]
        close(row, w)


def test_fedbn_is_its_formulas() -> None:
    """Batch normalisation of the inputs: its scale and shift are learned, its statistics taken."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        fed = front(nn.Sequential(nn.BatchNorm1d(FEATURES), nn.Linear(FEATURES, CLASSES)))
    end = trained(FedBN(WHOLE), fed, 2)
    D, C = FEATURES, CLASSES
    w0 = initial(fed)
    common: Row = w0[2 * D : 2 * D + C * (D + 1)]
    norms = [np.concatenate([w0[: 2 * D], np.zeros(D), np.ones(D)]) for _ in fed.population]
    for _ in range(2):
        rows = []
        for i, who in enumerate(fed.population):
            x, y = data(who)
            (gamma, beta, mean, var), W, b = norms[i].reshape(4, D), common[:-C], common[-C:]
            W = W.reshape(C, D)
            hat = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)
            for _ in range(2):
                p = np.exp(log_softmax((gamma * hat + beta) @ W.T + b))
                p[np.arange(len(y)), y] -= 1
                p /= len(y)
                seen, back = gamma * hat + beta, p @ W
                W, b = W - 0.2 * p.T @ seen, b - 0.2 * p.sum(0)
                gamma, beta = gamma - 0.2 * (back * hat).sum(0), beta - 0.2 * back.sum(0)
                mean, var = 0.9 * mean + 0.1 * x.mean(0), 0.9 * var + 0.1 * x.var(0, ddof=1)
            norms[i] = np.concatenate([gamma, beta, mean, var])
            rows.append(np.concatenate([W.ravel(), b]))
        common = sizes(fed) @ rows
    close(end.models[0][2 * D : 2 * D + C * (D + 1)], common)
    for i, norm in enumerate(norms):
        close(own(fed)[i], norm)
