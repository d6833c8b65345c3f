"""Replay of golden cases against the project's own functions: `python -m tests.golden [FILE]`.

A case is a function's name, its arguments, what is expected and how closely. The table below says
which words of the library a name means; nothing is computed here but conversions.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from coterie.core.client import Client
from coterie.core.layout import Layout
from coterie.methods.scaffold import variate
from coterie.runs import metrics
from coterie.tasks.optimiser import SGD
from coterie.tasks.solver import Descent, Solver, pull
from coterie.words import affinity, distance, grouping, mixing, voting

FILE = Path(__file__).with_name("golden.json")


def t(x: Any) -> Tensor:
    """Numbers, in float64."""
    return torch.tensor(x, dtype=torch.float64)


def i(x: Any) -> Tensor:
    """Labels or indices."""
    return torch.tensor(x, dtype=torch.long)


def averaged(models: Any, sizes: Any, labels: Any, k: int, keep: Any = None) -> Tensor:
    W = mixing.within(i(labels), t(sizes), k)
    return mixing.mix(W, t(models), None if keep is None else t(keep))


def epochs(E_prev: Any, loss_history: Any, sizes: Any, alpha: float) -> Tensor:
    history = t(loss_history)
    total = voting.cumulative(history)[-1]
    return voting.adjust_epochs(t(E_prev), total, history[-1], t(sizes), alpha)


def vote(M: Any, sizes: Any, include_self_gap: bool = False, **options: Any) -> dict[str, Any]:
    found = voting.vote(t(M), t(sizes), include_self=include_self_gap, **options)
    return {"labels": found.labels, "reps": found.representatives}


def guard(M: Any, labels: Any) -> dict[str, Any]:
    found = grouping.guard(t(M), i(labels))
    return {"labels": found.labels, "silhouette": found.silhouette, "kept": found.kept}


def propagate(S: Any, **options: Any) -> dict[str, Any]:
    found = grouping.affinity_propagation(t(S), **options)
    return {"labels": found.labels, "converged": found.converged}


def dapfl(c: Any, W: Any, sigma: float, eps: float, dynamic: bool = True) -> Tensor:
    if not dynamic:
        return affinity.static_weights(t(c))
    return affinity.dynamic_weights(t(c), distance.squared_l2(t(W)), sigma, eps)


def auto(D: Any) -> dict[str, Any]:
    found = grouping.auto_cut(t(D))
    return {
        "lam": found.threshold,
        "k": found.k,
        "ratio": found.ratio,
        "silhouette": found.silhouette,
        "labels": found.labels,
    }


def newcomer(theta_new: Any, centroids: Any) -> dict[str, Any]:
    cost = distance.cross_l2(t([theta_new]), t(centroids))
    cluster = int(grouping.closest(cost)[0])
    return {"cluster": cluster, "distance": cost[0, cluster]}


def bipartition(S: Any) -> dict[str, Any]:
    labels, max_cross = grouping.bipartition(t(S))
    return {"labels": labels, "max_cross": max_cross}


def criteria(U: Any, sizes: Any, eps1: float, eps2: float) -> dict[str, Any]:
    found = grouping.incongruence(t(U), t(sizes), eps1, eps2)
    return {"mean_norm": found.mean_norm, "max_norm": found.max_norm, "split": found.split}


def fednova(w: Any, locals_: Any, sizes: Any, taus: Any, momentum: float) -> Tensor:
    W = mixing.normalised(t(sizes), mixing.step_norm(i(taus), momentum))
    return mixing.move(W, t(locals_), t(w))


def scaffold(
    x: Any, c: Any, ys: Any, c_old: Any, c_new: Any, n_total: int, lr_g: float
) -> dict[str, Any]:
    return {
        "x": mixing.move(mixing.uniform(len(ys)), t(ys), t(x), lr_g),
        "c": mixing.control(t(c), t(c_new) - t(c_old), n_total),
    }


def bases(data: Any, p: int) -> Tensor:
    return torch.stack([distance.basis(t(x), p) for x in data])


def fedsoft(sample_losses: Any, n_k: Any, sigma: float) -> dict[str, Any]:
    u = torch.stack([affinity.importance(t(losses), sigma) for losses in sample_losses])
    return {"u": u, "v": affinity.soft_weights(u, t(n_k))}


class Given:
    """Stands for a mounted network whose gradient is known beforehand."""

    mask, exact = None, True

    def __init__(self, w: Any, g: Any) -> None:
        self.w, self.grad = t(w), torch.empty(len(g), dtype=torch.float64)
        self.given = t(g)

    def gradient(self) -> None:
        self.grad.copy_(self.given)


def stepped(w: Any, g: Any, solver: Solver, anchor: Any = None, shift: Any = None) -> Tensor:
    """Where one step of the local solver leads."""
    net: Any = Given(w, g)
    solver.step(net, {}, t(w if anchor is None else anchor), (), shift=shift)  # type: ignore[arg-type]
    return net.w  # type: ignore[no-any-return]


def momentum(w: Any, g: Any, buf: Any, lr: float, momentum: float) -> dict[str, Tensor]:
    new, v = t(w), t(buf)
    SGD(momentum=momentum).step(new, t(g), {"v": v}, lr)
    return {"w": new, "buf": v}


def pulled(grad: Any, w: Any, w_global: Any, mu: float) -> Tensor:
    g = t(grad)
    pull(g, t(w), t(w_global), mu)
    return g


def logistic(W: Any, b: Any) -> Layout:
    """A logistic regression in float64 that starts at these numbers."""
    net = nn.Linear(len(W), len(b)).double()
    with torch.no_grad():
        net.weight.copy_(t(W).T)
        net.bias.copy_(t(b))
    return Layout(net)


def shaped(row: Tensor, layout: Layout, *names: str) -> dict[str, Tensor]:
    weight, bias = row[layout.columns("weight")], row[layout.columns("bias")]
    return dict(zip(names, (weight.view(len(bias), -1).T, bias), strict=True))


def logreg_grad(W: Any, b: Any, X: Any, y: Any) -> dict[str, Tensor]:
    layout = logistic(W, b)
    net = layout.flat(layout.initial)
    net.gradient(t(X), i(y))
    return shaped(net.grad, layout, "gW", "gb")


def maml(
    W: Any, b: Any, batches: Any, eta: float, eps_lr: float, momentum: float
) -> dict[str, Tensor]:
    layout = logistic(W, b)
    net = layout.flat(layout.initial)
    solver = Solver(lr=eps_lr, optimiser=SGD(momentum=momentum), meta=eta)
    state = solver.optimiser.init(net.grad)
    for (X, y), (X_outer, y_outer) in batches:
        solver.step(net, state, layout.initial, (t(X_outer), i(y_outer)), (t(X), i(y)))
    return shaped(net.w, layout, "W", "b")


def personalise(W: Any, b: Any, X: Any, y: Any, eta: float, steps: int) -> dict[str, Tensor]:
    layout = logistic(W, b)
    client = Client(t(X), i(y), t(X), i(y))
    solver = Solver(lr=eta, steps=steps, batch=0)
    row, _ = Descent(solver, client, layout.initial, torch.Generator()).run_single(layout)
    return shaped(row, layout, "W", "b")


WORDS: dict[str, Callable[..., object]] = {
    # AutoCFL
    "autocfl_epochs": epochs,
    "autocfl_epochs_int": lambda E: voting.whole_epochs(t(E)),
    "autocfl_cumulative": lambda loss_history: voting.cumulative(t(loss_history)),
    "autocfl_variance": lambda CL_row: voting.variance(t(CL_row)),
    "autocfl_should_stop": lambda V: voting.should_stop(t(V)),
    "autocfl_distance": lambda W: distance.scaled_l2(t(W)),
    "autocfl_scores": lambda M, sizes: voting.scores(voting.demarcate(t(M)), t(sizes)),
    "autocfl_vote_clusters": vote,
    "autocfl_iid_guard": guard,
    # CFLGT
    "cflgt_trajectory": lambda features, probs, labels, normalise: distance.trajectory(
        t(features), t(probs), i(labels), normalise
    ),
    "cflgt_distance": lambda T: distance.trajectories(t(T)),
    "cflgt_cv": lambda T: distance.variation(t(T)),
    "hopkins": lambda X, sample_idx, uniform_pts, power: grouping.hopkins(
        t(X), i(sample_idx), t(uniform_pts), power
    ),
    "affinity_propagation": propagate,
    # FedDSMIC
    "kl_matrix": lambda P_local, P_centre: distance.kl(t(P_local), t(P_centre)),
    "kl_assign": lambda P_local, P_centre: grouping.closest(distance.kl(t(P_local), t(P_centre))),
    "feddsmic_centres": lambda old_centres, models, sizes, assign: averaged(
        models, sizes, assign, len(old_centres), old_centres
    ),
    # DA-PFL
    "dapfl_affinity_raw": lambda S: affinity.complementarity(i(S)),
    "dapfl_affinity": lambda S, norm: affinity.affinity(i(S), norm),
    "dapfl_weights": dapfl,
    "dapfl_aggregate": lambda alpha, W: mixing.mix(t(alpha), t(W)),
    "dapfl_median_sigma": lambda W: affinity.median_sigma(distance.squared_l2(t(W))),
    # FedClust
    "fedclust_distance": lambda W: distance.l2(t(W)),
    "hac_heights": lambda D, linkage: grouping.heights(t(D), linkage),
    "hierarchical_cut": lambda D, lam, linkage: grouping.cut(t(D), lam, linkage),
    "hierarchical_cut_k": lambda D, k, linkage: grouping.cut_k(t(D), k, linkage),
    "fedclust_auto_lambda": auto,
    "fedclust_centroids": lambda W, labels, sizes: averaged(W, sizes, labels, max(labels) + 1),
    "fedclust_newcomer": newcomer,
    "silhouette": lambda D, labels: grouping.silhouette(t(D), i(labels)),
    # baselines
    "weighted_average": lambda models, weights: mixing.mix(mixing.average(t(weights)), t(models))[
        0
    ],
    "ifca_assign": lambda losses: grouping.closest(t(losses)),
    "cosine_matrix": lambda U: distance.cosine(t(U)),
    "cfl_bipartition": bipartition,
    "cfl_criteria": criteria,
    "cfl_split_accepted": grouping.separable,
    "fednova_aggregate": fednova,
    "fednova_norm": lambda tau, momentum: mixing.step_norm(i([tau]), momentum)[0],
    "scaffold_server": scaffold,
    "pacfl_matrix_smallest": lambda data, p: distance.subspaces(bases(data, p), "smallest"),
    "pacfl_matrix_trace": lambda data, p: distance.subspaces(bases(data, p), "trace"),
    "pacfl_angles": lambda data, p: distance.principal_angles(*bases(data, p)),
    "fedamp_weights": lambda W, alpha_k, sigma: affinity.attention(
        distance.squared_l2(t(W)), alpha_k, sigma
    ),
    "fedamp_aggregate": lambda X, W: mixing.mix(t(X), t(W)),
    "fedsem_assign": lambda models, centres: grouping.nearest(t(models), t(centres)),
    "fedsem_update": lambda models, sizes, assign, centres: averaged(
        models, sizes, assign, len(centres), centres
    ),
    "fedsoft_weights": fedsoft,
    # the local solver
    "sgd_momentum_step": momentum,
    "fedprox_grad": pulled,
    "ditto_step": lambda v, grad_v, w_global, lr, lam: stepped(
        v, grad_v, Solver(lr=lr, prox=lam), anchor=w_global
    ),
    "scaffold_local_step": lambda y, grad, c_i, c, lr: stepped(
        y, grad, Solver(lr=lr), shift=t(c) - t(c_i)
    ),
    "scaffold_control": lambda c_i, c, x, y, K, lr: variate(t(c_i), t(c), t(x), t(y), K, lr),
    "logreg_grad": logreg_grad,
    "fo_maml_rounds": maml,
    "personalise_logreg": personalise,
    # metrics
    "clusters_correct": lambda true, pred: metrics.clusters_correct(i(true), i(pred)),
    "adjusted_rand": lambda true, pred: metrics.adjusted_rand(i(true), i(pred)),
    "bottom_k": lambda accs, k: metrics.bottom_k(t(accs), k),
    "top_k_mean": metrics.top_k_mean,
    "last_k_mean": metrics.last_k_mean,
    "rounds_to_target": metrics.rounds_to_target,
    "weighted_accuracy": lambda accs, sizes: metrics.weighted(t(accs), t(sizes)),
    "comm_per_client_mb": metrics.comm_per_client_mb,
}


def load(file: Path = FILE) -> list[dict[str, Any]]:
    """The cases of a golden file."""
    cases: list[dict[str, Any]] = json.loads(file.read_text())["cases"]
    return cases


def difference(got: object, expected: object, rtol: float, atol: float, at: str = "") -> str:
    """Where and how two answers differ; empty if they do not. null is NaN or None."""
    if isinstance(got, Tensor):
        got = got.tolist()
    where = at or "answer"
    if isinstance(expected, dict):
        if not isinstance(got, dict) or got.keys() != expected.keys():
            return f"{where}: expected the fields {sorted(expected)}, got {got!r}"
        pairs = [(f"{at}.{k}".lstrip("."), got[k], expected[k]) for k in expected]
    elif isinstance(expected, list):
        if not isinstance(got, list | tuple) or len(got) != len(expected):
            return f"{where}: expected {len(expected)} entries, got {got!r}"
        pairs = [(f"{at}[{n}]", *pair) for n, pair in enumerate(zip(got, expected, strict=True))]
    elif expected is None or got is None:
        nothing = got is None or (isinstance(got, float) and math.isnan(got))
        return "" if expected is None and nothing else f"{where}: expected {expected}, got {got}"
    elif isinstance(expected, bool) or isinstance(got, bool) or isinstance(expected, str):
        same = type(got) is type(expected) and got == expected
        return "" if same else f"{where}: expected {expected!r}, got {got!r}"
    else:
        close = abs(got - expected) <= atol + rtol * abs(expected)  # type: ignore[operator]
        return "" if close else f"{where}: expected {expected}, got {got}"
    return next((d for p, a, b in pairs if (d := difference(a, b, rtol, atol, p))), "")


def failure(case: dict[str, Any]) -> str:
    """Why a case fails, in one line; empty if it passes."""
    try:
        got = WORDS[case["fn"]](**case["args"])
    except Exception as error:  # a case that raises is a case that fails; the replay goes on
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return difference(got, case["expected"], case["rtol"], case["atol"])


def main(argv: list[str]) -> int:
    """Replay a file, print what fails and the counts."""
    cases = load(Path(argv[0]) if argv else FILE)
    mapped = [case for case in cases if case["fn"] in WORDS]
    failed = 0
    for case in mapped:
        why = failure(case)
        if why:
            failed += 1
            print(f"FAILED {case['id']}: {why}")
    for name in sorted({case["fn"] for case in cases} - WORDS.keys()):
        print(f"unmapped {name}")
    print(f"{len(mapped) - failed} passed, {failed} failed, {len(cases) - len(mapped)} unmapped")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
