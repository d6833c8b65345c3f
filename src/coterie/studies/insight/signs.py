"""Signs of how clients differ, each measured against its own noise: two halves of a client's data.

Whatever is looked at (labels, images, what a training makes of a model) is taken of both halves of
everybody. What two halves of one client differ by is the noise floor; only what clients differ by
beyond that is a difference between clients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from coterie import engines
from coterie.config import Config
from coterie.core.client import Client
from coterie.core.types import Federation, State
from coterie.studies.run import experiment
from coterie.tasks import Solver, TrainHalves, equal_steps
from coterie.tasks.halves import halves
from coterie.words.grouping import Verified, verified_groups

SIGNS = ("labels", "inputs", "meaning", "contrast", "detail", "updates", "groups", "peers", "sizes")
MOST = 200  # clients that are looked at: each is compared with each
WARM_UP = 10  # epochs of the median client, on each half

Signs = dict[str, float]


def apart(a: Tensor, b: Tensor) -> float:
    """How much of what two clients differ by is more than noise: 0 nothing, 1 all of it.

    a and b (n, d) are the same of everybody's two halves. NaN: somebody has nothing to show there.

    >>> same = torch.tensor([[1.0], [2.0], [1.5]])
    >>> apart(same, same), apart(same, torch.tensor([[2.0], [1.0], [1.5]]))
    (1.0, 0.0)
    """
    there = ~(a.isnan().any(1) | b.isnan().any(1))
    a, b = a[there].double(), b[there].double()
    n = len(a)
    if n < 2:
        return 0.0
    all_pairs = torch.cdist(a, b).square()
    own = float(all_pairs.diagonal().mean())
    others = float((all_pairs.sum() - all_pairs.diagonal().sum()) / (n * (n - 1)))
    return min(1.0, max(0.0, 1 - own / others)) if others > 0 else 0.0


def signs(found: Floor, clients: Sequence[Client], classes: int) -> Signs:
    """All signs of some clients, whose trainings on two halves found a noise floor."""
    a, b = found.halves.unbind(1)
    some = [clients[i] for i in range(min(len(clients), MOST))]
    pairs = [halves(client) for client in some]

    def seen(look: Callable[[Client], Tensor]) -> float:
        first, second = ([look(pair[i]).flatten() for pair in pairs] for i in (0, 1))
        return apart(torch.stack(first), torch.stack(second))

    image = len(some[0].x.shape) == 4
    sizes = torch.tensor([float(len(client)) for client in clients])
    return {
        "labels": seen(lambda c: one_hot(c.y, classes).float().mean(0)),
        "inputs": seen(lambda c: c.x.mean(0)),
        "meaning": meaning(pairs, classes),
        "contrast": seen(lambda c: c.x.flatten(1).std(1, correction=0).mean()),
        "detail": seen(lambda c: c.x.diff(dim=-1).abs().mean()) if image else 0.0,
        "updates": apart(normalize(a, dim=1), normalize(b, dim=1)),
        "groups": max(0.0, found.groups.gain),
        "peers": 1 / (1 + found.groups.peers),
        "sizes": min(1.0, float(sizes.std(correction=0) / sizes.mean())),
    }


def signs_of(config: Config) -> Signs:
    """The signs of an experiment's clients."""
    torch.set_num_threads(config.engine.threads)
    clients = experiment.population(config)
    config = experiment.with_network(config, clients.shape)
    layout = experiment.network(config, clients.shape, clients.classes)
    name = "serial" if config.engine.name == "auto" else config.engine.name
    fed = engines.build(name, clients, layout, config.seed)
    found = noise_floor(fed, experiment.solver(config.train, Solver()))
    return signs(found, clients, clients.classes)


def meaning(pairs: Sequence[tuple[Client, Client]], classes: int) -> float:
    """How much the images of one label differ between clients: the mean over labels."""
    found = []
    for label in range(classes):
        both = [
            torch.stack([pair[i].x[pair[i].y == label].mean(0).flatten() for pair in pairs])
            for i in (0, 1)
        ]
        if int((~both[0].isnan().any(1) & ~both[1].isnan().any(1)).sum()) > 1:
            found.append(apart(*both))
    return sum(found) / len(found) if found else 0.0


class Floor:
    """What two trainings of everybody, on two halves of its data, say of groups."""

    def __init__(self, halves: Tensor, clients: Tensor) -> None:
        self.halves, self.clients = halves, clients  # (m, 2, h), (m,)
        self.groups: Verified = verified_groups(halves[:, 0], halves[:, 1])


def noise_floor(fed: Federation, solver: Solver) -> Floor:
    """The last layers after two trainings of everybody, on two halves of its data."""
    start = State.shared(fed.layout.initial, len(fed.clients))
    some = fed.clients[:MOST]
    replies = fed.ask(some, TrainHalves(equal_steps(solver, WARM_UP, fed.sizes)), start)
    head = fed.layout.initial[fed.layout.columns("head")]
    return Floor(replies.values - head, replies.clients)
