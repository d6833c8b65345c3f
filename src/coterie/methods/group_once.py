"""What the methods that group their clients once have in common.

Signatures come up, distances between them become groups, each group trains apart, and whoever comes
later joins the group it is nearest to. Which signature, distance, cut and join: that is the method.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from coterie.core.rng import stream
from coterie.core.types import Federation, Replies, State
from coterie.tasks import Solver, Train
from coterie.words.server import ServerOptimiser

LANDMARKS = 2000  # clients that are grouped at once, unless the user says otherwise
KEPT = 1000  # clients whose distances are kept in the state, for whoever looks at it later


def landmarks(r: Replies, most: int, fed: Federation) -> tuple[Replies, Replies]:
    """At most `most` of those who answered, drawn at random, and the others; 0: everybody.

    The others join as newcomers do, which costs n; what takes n^2 time and memory stays bounded.
    """
    if not most or len(r) <= most:
        return r, pick(r, torch.empty(0, dtype=torch.long))
    order = torch.randperm(len(r), generator=stream(fed.seed, "landmarks", fed.round))
    return pick(r, order[:most].sort().values), pick(r, order[most:].sort().values)


def pick(r: Replies, rows: Tensor) -> Replies:
    """Some of the replies, by increasing position."""
    extra = {name: t[rows] for name, t in r.extra.items()}
    return replace(
        r, clients=r.clients[rows], values=r.values[rows], sizes=r.sizes[rows], extra=extra
    )


def before_groups(state: State) -> State:
    """The state in which everybody holds `pretrained`, the one model from before the grouping."""
    return State.shared(state.memory["pretrained"][0], len(state.assign))


def round_in_groups(
    state: State, fed: Federation, solver: Solver, fraction: float, server: ServerOptimiser
) -> State:
    """FedAvg inside each group: draw among those who are in one, train, average."""
    cohort = fed.sample(fraction, among=state.placed)
    merged = server.merged(state, fed.ask(cohort, Train(solver), state))
    return server.advance(state, merged, fed.layout)


def kept(D: Tensor, clients: Tensor, n: int) -> dict[str, Tensor]:
    """The distances as a state remembers them: (n, n), NaN for whoever did not answer.

    With more than `KEPT` clients, those among `KEPT` of them alone, at even steps, and whose they
    are: `compared`. A state is saved every round, and 10,000 clients would make it 400 MB.
    """
    if n <= KEPT:
        return {"distance": spread(D, clients, n)}
    some = torch.linspace(0, len(D) - 1, min(len(D), KEPT), dtype=torch.float64).round().long()
    return {"distance": D[some[:, None], some], "compared": clients[some]}


def spread(D: Tensor, clients: Tensor, n: int) -> Tensor:
    """(n, n): the distances of those who answered, NaN for whoever did not.

    >>> spread(torch.zeros(1, 1), torch.tensor([1]), 2).tolist()
    [[nan, nan], [nan, 0.0]]
    """
    full = D.new_full((n, n), float("nan"))
    full[clients[:, None], clients] = D
    return full
