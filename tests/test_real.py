"""The papers' groups on real images. Skipped by name where the image sets are absent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from coterie.data.dataset import Data
from coterie.data.load import load
from coterie.data.population import partition
from coterie.methods.autocfl import AutoCFL
from coterie.methods.cflgt import CFLGT
from coterie.methods.kin import Kin
from coterie.studies.run.training import fit
from coterie.tasks.solver import Solver

pytestmark = [pytest.mark.slow, pytest.mark.shared]
LABELS = "label-groups:0-2/3-6/4-9/0-9"
SOLVER = Solver(lr=0.01, epochs=2, batch=128)


def few(per_client: int, clients: int = 20) -> Data:
    """As many Fashion-MNIST images as these clients need."""
    data = load("fashion-mnist")
    keep = torch.arange(per_client * clients)
    return replace(data, x=data.x[keep], y=data.y[keep])


def clustered(method: Any, data: Data, kind: str, clients: int, rounds: int, model: str) -> Any:
    people = partition(data, kind, clients=clients, seed=0)
    return fit(method, people, model, rounds=rounds, every=rounds).summary["clusters"]


def test_cflgt_finds_its_five_pairs_of_labels(real_data: Path) -> None:
    method = CFLGT(pretrain=1)
    found = clustered(method, load("fashion-mnist"), "label-sets:5,2,50", 100, 2, "dnn2")
    assert (found["clusters"], found["clusters_correct"]) == (5, 100)


@pytest.mark.parametrize("kind", ["rotation:0,180", "rotation:0,180+quantity"])
def test_autocfl_finds_the_rotated(real_data: Path, kind: str) -> None:
    found = clustered(AutoCFL(SOLVER), few(1000), kind, 20, 6, "cnn-f")
    assert (found["clusters"], found["clusters_correct"]) == (2, 20)


@pytest.mark.parametrize(
    ("method", "rounds"),
    [(AutoCFL(SOLVER, clustering="auto_cosine"), 6), (Kin(SOLVER), 1)],
    ids=["auto_cosine", "kin"],
)
def test_direction_finds_label_groups_of_unequal_clients(
    real_data: Path, method: Any, rounds: int
) -> None:
    found = clustered(method, few(1000), f"{LABELS}+quantity", 20, rounds, "cnn-f")
    assert (found["clusters"], found["clusters_correct"]) == (4, 20)


@pytest.mark.parametrize(
    ("method", "rounds"),
    [
        (AutoCFL(SOLVER), 6),
        (AutoCFL(SOLVER, clustering="auto_cosine"), 6),
        (Kin(SOLVER), 1),
        (CFLGT(SOLVER, pretrain=1), 2),
    ],
    ids=["autocfl", "auto_cosine", "kin", "cflgt"],
)
def test_clients_alike_are_one_cluster(real_data: Path, method: Any, rounds: int) -> None:
    assert clustered(method, few(500), "iid", 20, rounds, "cnn-f")["clusters"] == 1
