"""kin: what the five papers together teach, and what to use when you do not know which.

Ours. From FedClust, one short training and the last layer of it; from AutoCFL, that clients must
have trained equally long before they can be compared; from both, that direction tells more than
distance, and that one group must be an answer; from FedDSMIC, a last local step before use. New is
drift: from the updates that arrive anyway, a client that persistently pulls towards another cluster
moves there, and a cluster whose clients pull apart is split.
"""

from __future__ import annotations

from dataclasses import field, replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from coterie.core.bounds import Count, Part, Share, Whole, dataclass
from coterie.core.types import Federation, Replies, State
from coterie.methods.group_once import LANDMARKS, kept, landmarks
from coterie.tasks import Score, Solver, Train, equal_steps
from coterie.words.distance import cosine_distance
from coterie.words.drift import lean, sides
from coterie.words.grouping import auto_cut
from coterie.words.mixing import merge, mix, within
from coterie.words.server import ServerOptimiser


@dataclass(frozen=True)
class Kin:
    """Group once by the direction of the last layer's first update, train apart, follow drift."""

    solver: Solver = Solver(lr=0.05, epochs=2, batch=32)
    fraction: Share = 1.0  # of clients drawn in a round
    warmup_epochs: Count = 10  # of the median client, as steps for everybody
    look: Whole = 2  # rounds between two looks for drift; 0: clusters stay as they are
    patience: Count = 2  # looks in a row that must agree before a client moves
    margin: Part = 0.1  # how much more than its peers it must pull to the other cluster (cosine)
    unrelated: Part = 0.0  # two halves of a cluster that pull less alike than this part (cosine)
    tune_epochs: Count = 1  # of the last layer on the client's own data, before use
    landmarks: Whole = LANDMARKS  # clients grouped at once, others join as newcomers; 0: all
    server: ServerOptimiser = field(default=ServerOptimiser(), kw_only=True)  # of the average

    kind = "clustered"

    @property
    def score(self) -> Score:
        """The cluster's model, and what the client's own tuning makes of it."""
        return Score(replace(self.solver, epochs=self.tune_epochs, steps=0), train="head")

    def init(self, fed: Federation) -> State:
        """Nobody is placed before everybody was asked."""
        return self.place(State.nobody(fed.layout.initial, len(fed.clients)), fed)

    def round(self, state: State, fed: Federation) -> State:
        """FedAvg inside each cluster, keeping account of where each client pulls."""
        state = self.place(state, fed)
        w = fed.ask(fed.sample(self.fraction, among=state.placed), Train(self.solver), state)
        head = fed.layout.columns("head")
        pull = (w.values - state.of(w.clients))[:, head]  # (m, h)
        state = self.server.advance(state, merge(state, w), fed.layout)
        if not self.look or "pull" not in state.memory:
            return state
        state = state.hold(pull=state.memory["pull"].index_add(0, w.clients, pull))
        if (state.round + 1) % self.look:
            return state
        state = self.split(self.move(state, state.models[:, head]))
        return state.hold(pull=torch.zeros_like(state.memory["pull"]))

    def move(self, state: State, heads: Tensor) -> State:
        """Who has pulled to the same other cluster for long enough goes there."""
        strength, target = lean(state.memory["pull"], heads, state.assign).max(1)
        target = torch.where(strength > self.margin, target, -1)
        again = (target == state.memory["target"]) & (target >= 0)
        streak = torch.where(again, state.memory["streak"] + 1, (target >= 0).long())
        movers = (streak >= self.patience).nonzero().flatten()
        return state.reassign(movers, target[movers]).hold(
            target=target,
            streak=streak.index_fill(0, movers, 0),
            signature=state.memory["signature"].index_fill(0, movers, 0),  # of data it had before
        )

    def split(self, state: State) -> State:
        """A cluster whose clients pull in two unrelated directions becomes two, once that lasts."""
        pull, before = state.memory["pull"], state.memory["rift"]
        rift = torch.zeros_like(before)  # (n,) the side each client would be on: 1, 2; 0: none
        for c in range(state.k):
            members = ((state.assign == c) & pull.any(1)).nonzero().flatten()
            labels, alike = sides(pull[members])
            if alike > self.unrelated:
                continue
            if not torch.equal(before[members], labels + 1):
                rift[members] = labels + 1
                continue
            leaving = members[labels == 1]
            grown = replace(state, models=torch.cat([state.models, state.models[c : c + 1]]))
            state = grown.reassign(leaving, torch.full_like(leaving, state.k))
        return state.hold(rift=rift)

    def place(self, state: State, fed: Federation) -> State:
        """A short training from the initial model; then the cluster whose members moved alike."""
        if not len(state.unplaced):
            return state
        first = State.shared(fed.layout.initial, len(fed.clients))
        warm = Train(equal_steps(self.solver, self.warmup_epochs, fed.sizes), upload="head")
        theta = fed.ask(state.unplaced, warm, first)
        if not theta:
            return state
        delta = theta.values - fed.layout.initial[fed.layout.columns("head")]
        if "signature" not in state.memory:
            return self.cluster(state, replace(theta, values=delta), fed)
        return self.join(state, replace(theta, values=delta))

    def join(self, state: State, theta: Replies) -> State:
        """Each of these goes to the cluster whose members' first updates point most its way."""
        known = state.memory["signature"]
        placed = state.placed[state.placed < len(known)]  # newcomers have no row of their own
        W = within(state.assign[placed], torch.ones(len(placed)), state.k)
        blank = known.new_zeros(state.k, known.shape[1])
        centres = mix(W, normalize(known[placed], dim=1), keep=blank)
        alike = normalize(theta.values, dim=1) @ normalize(centres, dim=1).T  # (m, k)
        return state.reassign(theta.clients, alike.argmax(1))

    def cluster(self, state: State, theta: Replies, fed: Federation) -> State:
        """Cosine distances between first updates; cut where the heights jump, or not at all."""
        some, others = landmarks(theta, self.landmarks, fed)
        D = cosine_distance(some.values)
        labels = auto_cut(D).labels
        n = len(fed.clients)
        blank = theta.values.new_zeros(n, theta.values.shape[1])
        state = state.regroup(some.clients, labels, fed.layout.initial).hold(
            signature=blank.index_copy(0, theta.clients, theta.values),
            pull=blank,
            target=torch.full((n,), -1),
            streak=torch.zeros(n, dtype=torch.long),
            rift=torch.zeros(n, dtype=torch.long),
            **kept(D, some.clients, len(fed.clients)),
        )
        return self.join(state, others)
