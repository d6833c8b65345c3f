"""Code of a user's that misbehaves is named, with the client it ran on; so is who overflows."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import coterie as ct
from tests.tiny import clients

SOLVER = ct.Solver(lr=0.1, batch=8)


class Leaves(nn.Module):
    """A network that ends the program when it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        if self.training and torch.is_grad_enabled() and len(x) == 8:
            sys.exit(0)
        out: Tensor = self.head(x.flatten(1)[:, :6])
        return out


@pytest.mark.parametrize("engine", ["serial", "pool", "stacked"])
@pytest.mark.row(25, counts="failures of own code")
def test_a_network_that_calls_exit_is_told_with_its_client(engine: str) -> None:
    people = ct.Population.of(clients(4), classes=4)
    with pytest.raises(ct.ClientError, match="SystemExit on client") as error:
        ct.fit(ct.FedAvg(SOLVER), people, Leaves(), rounds=1, engine=engine, workers=2)
    assert error.value.code == "U001"


@pytest.mark.row(25, counts="failures of own code")
def test_a_factory_that_calls_exit_is_told() -> None:
    people = ct.Population.of(clients(2), classes=4)
    with pytest.raises(ct.ConfigError, match="SystemExit") as error:
        ct.fit(ct.FedAvg(SOLVER), people, lambda: sys.exit(3), rounds=1)
    assert error.value.code == "C031"


@pytest.mark.parametrize(("many", "warns"), [(5, True), (4, False)])
@pytest.mark.row(22, counts="odd clusterings")
def test_more_clusters_than_owners_are_told(many: int, warns: bool) -> None:
    told: list[dict[str, Any]] = []
    people = ct.Population.of(clients(4), classes=4)
    net = nn.Sequential(nn.Flatten(), nn.Linear(people[0].x[0].numel(), 4))
    method = ct.IFCA(SOLVER, clusters=many)
    ct.fit(method, people, net, rounds=1, on_event=told.append, engine="serial")
    texts = [e["text"] for e in told if e["event"] == "warning"]
    found = [t for t in texts if t.startswith("clusters = 5 is more than there are clients (4)")]
    assert bool(found) is warns


@ct.dataclass(frozen=True)
class Overflow(ct.FedAvg):
    """A server whose arithmetic overflows where the answers themselves do not."""

    def round(self, state: ct.State, fed: ct.Federation) -> ct.State:
        replies = fed.ask(fed.clients, ct.Train(self.solver), state)
        rows = replies.values.clone()
        fed.heard[0].values[2, 0] = 1e30  # type: ignore[attr-defined]
        ct.distance.l2(rows.index_fill(0, torch.tensor([2]), 3e38) * 10)
        return state


def test_numbers_that_overflow_on_the_server_come_with_the_client_that_sent_the_largest() -> None:
    people = ct.Population.of(clients(4), classes=4)
    net = nn.Sequential(nn.Flatten(), nn.Linear(people[0].x[0].numel(), 4))
    with pytest.raises(ct.DivergedError) as error:
        ct.fit(Overflow(SOLVER), people, net, rounds=1, engine="serial")
    assert error.value.code == "R015"
    assert error.value.where == "client 2 sent the largest numbers, up to 1e+30"
