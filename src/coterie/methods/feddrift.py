"""FedDrift: who drifts trains alone for a while, and clusters whose models are alike become one.

Jothimurugesan, Hsieh, Wang, Joshi, Gibbons: Federated Learning under Distributed Concept Drift.
AISTATS 2023.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Literal

import torch
from torch import Tensor

from coterie.core.bounds import Count, Positive, Share, dataclass
from coterie.core.moments import without_moments
from coterie.core.rows import repeated, stacked
from coterie.core.types import Federation, Replies, State
from coterie.methods.group_once import round_in_groups
from coterie.tasks import Losses, Score, Solver
from coterie.words.grouping import closest, cut
from coterie.words.mixing import mix, within
from coterie.words.server import ServerOptimiser


@dataclass(frozen=True)
class FedDrift:
    """Models come when clients drift, and go when two of them fit each other's data.

    Time is divided into steps of `every` rounds. When one begins, each client takes the model that
    fits its data best; one whom even that fits worse than it was used to is given its own.
    """

    solver: Solver = Solver()
    fraction: Share = 1.0  # of clients drawn in a round
    every: Count = 5  # rounds of a time step
    delta: Positive = 0.1  # a client drifts whose loss rises by more than this
    merge: Positive | None = None  # delta', the distance up to which clusters merge; default: delta
    start: Literal["one", "own"] = "one"  # one model for all at first, or for each its own
    most: Count = 20  # models at most; of those that nobody holds, the oldest go first
    server: ServerOptimiser = field(default=ServerOptimiser(), kw_only=True)  # of the average

    kind = "clustered"
    score = Score()  # every client tests its cluster's model

    def init(self, fed: Federation) -> State:
        """The first models, and what each client's loss is before anything is learned."""
        n, first = len(fed.clients), State.shared(fed.layout.initial, len(fed.clients))
        state = first
        if self.start == "own":
            state = State(repeated(fed.layout.initial, n), fed.clients.clone())
        state = state.hold(
            loss=torch.full((n,), torch.inf, dtype=torch.float64),
            held=torch.zeros(state.k, dtype=torch.long),
        )
        return remembered(state, fed.ask(fed.clients, Losses(), first))

    def round(self, state: State, fed: Federation) -> State:
        """FedAvg inside each cluster; at the begin of a time step, clusters change first."""
        if state.round and state.round % self.every == 0:
            before, state = state, self.step(state, fed)
            if not torch.equal(before.models, state.models):  # moments belong to their models
                state = replace(state, memory=without_moments(state.memory))
        state = self.place(state, fed)
        return round_in_groups(state, fed, self.solver, self.fraction, self.server)

    def step(self, state: State, fed: Federation) -> State:
        """Everybody chooses; clusters that are alike merge; who has drifted leaves."""
        f = fed.ask(fed.clients, Losses(), state)
        if not f:
            return state
        before = known(state)[f.clients]
        state = remembered(state, f).reassign(f.clients, closest(f.values))
        drifted = f.values.double().amin(1) > before + self.delta  # (m,)
        alone = f.clients[drifted]
        fresh = state.of(alone)  # who leaves starts from the model that fits it best
        state = self.forget(self.merged(state, f, ~drifted), len(alone))
        room = max(0, self.most - state.k)
        return isolated(state, alone[:room], fresh[:room])

    def merged(self, state: State, f: Replies, stay: Tensor) -> State:
        """Clusters at most delta' apart become one, the farthest pair counts."""
        labels = state.assign[f.clients]
        sizes = f.counted(labels) * stay  # who leaves is no member any more
        W = within(labels, sizes, state.k)  # (k, m)
        there = (W != 0).any(1).nonzero().flatten()  # clusters that have data
        if len(there) < 2:
            return state
        L = (W[there] @ f.values[:, there].double()).T  # L[i, j]: model i on the data of j
        D = distances(L)
        limit = self.delta if self.merge is None else self.merge
        group = torch.arange(state.k)
        found = cut(D, limit, "complete")
        first = [int((found == c).int().argmax()) for c in found]
        group[there] = there[first]  # each cluster goes by the first that it merged with
        names, group = group.unique(return_inverse=True)
        weight = torch.zeros(state.k, dtype=torch.float64).index_add_(0, labels, sizes)
        models = mix(within(group, weight.clamp_min(1), len(names)), state.models)
        held = state.memory["held"].new_zeros(len(names))
        held.scatter_reduce_(0, group, state.memory["held"], "amax")
        return renumbered(state, group).hold(models, held=held)

    def forget(self, state: State, wanted: int) -> State:
        """The state without models that nobody holds, oldest first, as far as there is no room."""
        used = torch.zeros(state.k, dtype=torch.bool)
        used[state.assign[state.placed]] = True
        held = torch.where(used, state.round, state.memory["held"])
        surplus = max(0, state.k + wanted - self.most)
        idle = (~used).nonzero().flatten()
        gone = idle[held[idle].argsort(stable=True)[:surplus]]
        stays = torch.ones(state.k, dtype=torch.bool).index_fill(0, gone, False)
        place = stays.cumsum(0) - 1
        return renumbered(state, place).hold(state.models[stays], held=held[stays])

    def place(self, state: State, fed: Federation) -> State:
        """A newcomer takes the model with the least loss on its training data."""
        if not len(state.unplaced):
            return state
        f = fed.ask(state.unplaced, Losses(), state)
        return remembered(state, f).reassign(f.clients, closest(f.values)) if f else state


def distances(L: Tensor) -> Tensor:
    """How much worse a model is on another cluster's data than on its own's: (k, k) -> (k, k).

    max(L_ij - L_ii, L_ji - L_jj, 0), with L_ij the loss of model i on the data of cluster j.

    >>> distances(torch.tensor([[1.0, 4.0], [3.0, 2.0]])).tolist()
    [[0.0, 3.0], [3.0, 0.0]]
    """
    worse = (L - L.diagonal()[:, None]).clamp_min(0)
    return torch.maximum(worse, worse.T)


def known(state: State) -> Tensor:
    """(n,) the loss of each client when it was last asked; infinite for newcomers."""
    loss = state.memory["loss"]
    return torch.cat([loss, loss.new_full((len(state.assign) - len(loss),), torch.inf)])


def remembered(state: State, f: Replies) -> State:
    """The state that knows how well the best model fits those who answered."""
    if not f:
        return state
    return state.hold(loss=known(state).index_copy(0, f.clients, f.values.double().amin(1)))


def renumbered(state: State, place: Tensor) -> State:
    """The state in which whoever held model c holds model place[c] of those to come."""
    return replace(state, assign=torch.where(state.assign < 0, -1, place[state.assign]))


def isolated(state: State, alone: Tensor, fresh: Tensor) -> State:
    """The state in which each of these holds a model of its own."""
    if not len(alone):
        return state
    rows = torch.arange(state.k, state.k + len(alone))
    held = torch.cat([state.memory["held"], torch.full_like(rows, state.round)])
    return state.hold(stacked(state.models, fresh), held=held).reassign(alone, rows)
