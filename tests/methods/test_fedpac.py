from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from scipy.optimize import minimize

from coterie.methods.fedpac import FedPAC
from coterie.methods.partial import FedRep
from coterie.tasks.optimiser import SGD
from coterie.tasks.solver import Solver
from coterie.words.affinity import collaboration
from tests.methods.formulas import (
    BODY,
    HEAD,
    Row,
    close,
    data,
    features,
    initial,
    sizes,
    slope2,
    trained,
    two_layers,
)
from tests.tiny import CLASSES, federation, same

SOLVER = Solver(lr=0.1, batch=8, optimiser=SGD(momentum=0.5))
WHOLE = Solver(lr=0.2, steps=2, batch=0)


def test_without_alignment_and_collaboration_it_is_fedrep() -> None:
    """Within rounding: some processors sum one row of eight otherwise than the only one."""
    ours, theirs = federation(), federation()
    end = trained(
        FedPAC(SOLVER, lam=0.0, head_lr=SOLVER.lr, head_epochs=2, collaborate=False), ours
    )
    rep = trained(FedRep(SOLVER, 1.0, head_epochs=2), theirs)
    head, body = ours.layout.columns("head"), ours.layout.columns("~head")
    for i in range(8):
        for got, want in (
            (end.models[i, body], rep.models[0, body]),
            (end.models[i, head], theirs.memory[i]["private"]),
        ):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_a_pull_of_no_strength_is_no_pull_to_the_bit() -> None:
    """The steps that are taken by hand, with goals but next to no pull, are those of the engine."""
    free, held = (trained(FedPAC(SOLVER, lam=lam), federation()) for lam in (0.0, 1e-30))
    assert same(free, held)


def test_heads_are_mixed_by_the_minimum_of_their_problem() -> None:
    rng = np.random.default_rng(0)
    V, h = rng.uniform(0.01, 0.1, 5), rng.normal(0, 0.3, (5, 7))
    found = collaboration(torch.from_numpy(V), torch.from_numpy(h))
    close(found.sum(1), np.ones(5))
    assert found.min() >= 0
    for i, a in enumerate(found.numpy()):

        def objective(a: Row, i: int = i) -> float:
            return float(a**2 @ V + ((h[i] - a @ h) ** 2).sum())

        limits = {"type": "eq", "fun": lambda a: a.sum() - 1}
        best = minimize(
            objective, np.full(5, 0.2), bounds=[(0, 1)] * 5, constraints=limits, tol=1e-12
        )
        assert objective(a) <= best.fun + 1e-7


def test_it_is_its_formulas() -> None:
    fed = two_layers()
    end = trained(FedPAC(WHOLE, lam=0.7, head_lr=0.3, head_epochs=2), fed, 2)
    rows = [initial(fed).copy() for _ in fed.population]
    goals: Row | None = None
    for _ in range(2):
        V, H, made = [], [], []
        for w, who in zip(rows, fed.population, strict=True):
            _, y = data(who)
            z, n = features(w, who), len(y)
            h = np.stack([z[y == c].sum(0) / n for c in range(CLASSES)])
            V.append(((z**2).sum() / n - (h**2).sum()) / n)
            H.append(h.ravel())
            w = w.copy()
            for _ in range(2):
                w[HEAD] -= 0.3 * slope2(w, who)[HEAD]
            for _ in range(2):
                w[BODY] -= 0.2 * slope2(w, who, 0.7, goals)[BODY]
            made.append(w)
        total, count = np.zeros((CLASSES, 8)), np.zeros(CLASSES)
        for w, who in zip(made, fed.population, strict=True):
            for c in range(CLASSES):
                total[c] += features(w, who)[data(who)[1] == c].sum(0)
                count[c] += (data(who)[1] == c).sum()
        goals = total / np.maximum(count, 1)[:, None]
        alpha = collaboration(torch.tensor(V), torch.tensor(np.array(H))).numpy()
        body, heads = sizes(fed) @ np.array(made)[:, BODY], alpha @ np.array(made)[:, HEAD]
        rows = [np.concatenate([body, head]) for head in heads]
    close(end.models, np.stack(rows), rtol=1e-3, atol=1e-4)
    close(end.memory["prototypes"], goals, rtol=1e-3, atol=1e-4)


def test_clients_of_one_kind_share_a_head_and_others_do_not() -> None:
    fed = federation()
    end = trained(FedPAC(replace(SOLVER, epochs=2)), fed, 3)
    head = end.models[:, fed.layout.columns("head")]
    D = torch.cdist(head, head)
    assert D[:4, :4].mean() < 0.7 * D[:4, 4:].mean()


def test_a_stronger_pull_brings_features_nearer_to_their_class() -> None:
    apart = []
    for lam in (0.0, 0.5, 3.0):
        fed = federation(groups=1)  # a label means the same to all
        end = trained(FedPAC(Solver(lr=0.05, batch=8), lam=lam), fed, 3)
        goals = end.memory["prototypes"]
        off = [
            (fed.layout.features(end.models[i], who.x)[0] - goals[who.y]).square().mean()
            for i, who in enumerate(fed.population)
        ]
        apart.append(float(torch.stack(off).mean()))
    assert apart[0] > apart[1] > apart[2]


def test_a_newcomer_trains_a_head_alone() -> None:
    fed, method = federation(), FedPAC(SOLVER)
    end = trained(method, fed, 2)
    late = replace(end, assign=end.assign.index_fill(0, torch.tensor([5]), -1))
    placed = method.place(late, fed.at(2))
    body = fed.layout.columns("~head")
    assert placed.assign.tolist() == [0, 1, 2, 3, 4, 8, 6, 7]
    torch.testing.assert_close(placed.models[8, body], end.models[0, body])
