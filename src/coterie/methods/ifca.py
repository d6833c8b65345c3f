"""IFCA: k models for everybody to choose from; each client trains the one that fits it best.

Ghosh, Chung, Yin, Ramchandran: An Efficient Framework for Clustered Federated Learning.
NeurIPS 2020.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Literal

import torch
from torch import Tensor

from coterie.core.bounds import Count, Share, Whole, dataclass
from coterie.core.rng import stream
from coterie.core.types import Federation, Replies, State
from coterie.tasks import Choose, Losses, Score, Solver, Train
from coterie.words.grouping import closest, kmeans
from coterie.words.mixing import average
from coterie.words.server import ServerOptimiser


@dataclass(frozen=True)
class IFCA:
    """All k models are sent; a client picks by its training loss and returns what it trained.

    The first model is the initial one, the others are drawn anew, so that clients can tell them
    apart. A client that was never drawn has no cluster yet.
    """

    solver: Solver = Solver(lr=0.1, steps=10, batch=0)
    fraction: Share = 1.0  # of clients drawn in a round
    clusters: Count = 4  # k
    share: Literal["none", "body"] = "none"  # body: one extractor for all clusters, k heads
    start: Literal["random", "kmeans"] = "random"  # kmeans: on the models of one warm-up round
    starts: Count = 1  # random starts, of which the one with the least training loss is taken
    fix_after: Whole = 0  # rounds after which nobody chooses again; 0: never
    server: ServerOptimiser = field(default=ServerOptimiser(), kw_only=True)  # of the average

    kind = "clustered"
    score = Score()  # every client tests the model it chose last

    def init(self, fed: Federation) -> State:
        """k different models, and nobody has chosen."""
        models = (self.random if self.start == "random" else self.warm)(fed)
        return State.nobody(models, len(fed.clients))

    def random(self, fed: Federation) -> Tensor:
        """(k, P) networks drawn anew; of several draws, the one whose models fit best so far."""
        rows = self.drawn(fed, self.starts)
        if self.starts == 1:
            return rows
        f = self.losses(fed.sample(self.fraction), State.nobody(rows, len(fed.clients)), fed)
        sets = rows.view(self.starts, self.clusters, -1)
        if not f:
            return sets[0]
        least = f.values.view(-1, self.starts, self.clusters).amin(2)  # (m, starts)
        return sets[int((average(f.counted()) @ least.double()).argmin())]

    def warm(self, fed: Federation) -> Tensor:
        """(k, P) the means that k-means finds among the models of a round from the initial one."""
        one = State.shared(fed.layout.initial, len(fed.clients))
        w = fed.ask(fed.sample(self.fraction), Train(self.solver), one)
        spare = State.nobody(self.drawn(fed, 1), len(fed.clients))
        if not w:
            return spare.models
        updates = (w.values - fed.layout.initial)[:, fed.layout.columns("params")]
        labels = kmeans(updates, self.clusters, stream(fed.seed, "kmeans"))
        return self.merge(spare.reassign(w.clients, labels), w, fed).models

    def drawn(self, fed: Federation, starts: int) -> Tensor:
        """(starts k, P) the initial network and others drawn like it, with its body if shared."""
        others = range(1, starts * self.clusters)
        fresh = [fed.layout.fresh(stream(fed.seed, "start", i)) for i in others]
        rows = torch.stack([fed.layout.initial, *fresh])
        if self.share == "body":
            body = fed.layout.columns("~head")
            rows[:, body] = fed.layout.initial[body]
        return rows

    def round(self, state: State, fed: Federation) -> State:
        """Send all models; who is drawn chooses and trains; average those who chose the same."""
        if self.fix_after and state.round >= self.fix_after:
            state = self.place(state, fed)
            cohort = fed.sample(self.fraction, among=state.placed)
            w = fed.ask(cohort, Train(self.solver), state)
            return self.server.advance(state, self.merge(state, w, fed), fed.layout)
        task = Choose(self.solver, heads=self.share == "body")
        w = fed.ask(fed.sample(self.fraction), task, state, **self.body(state, fed))
        if not w:
            return state
        merged = self.merge(state.reassign(w.clients, w.extra["choice"]), w, fed)
        return self.server.advance(state, merged, fed.layout)

    def merge(self, state: State, w: Replies, fed: Federation) -> State:
        """Each cluster's own average; a shared extractor is the average of everybody's."""
        merged = self.server.merged(state, w)
        if self.share == "none" or not w:
            return merged
        body = fed.layout.columns("~head")
        models = merged.models.clone()
        everybody = replace(merged, models=state.models[:1], assign=torch.zeros_like(state.assign))
        models[:, body] = self.server.merged(everybody, w).models[:, body]
        return merged.hold(models)

    def place(self, state: State, fed: Federation) -> State:
        """A newcomer takes the model with the least loss on its training data."""
        if not len(state.unplaced):
            return state
        f = self.losses(state.unplaced, state, fed)
        return state.reassign(f.clients, closest(f.values)) if f else state

    def losses(self, cohort: Tensor, state: State, fed: Federation) -> Replies:
        """(m, k) how well each model fits each client's training data."""
        task = Losses(heads=self.share == "body")
        return fed.ask(cohort, task, state, **self.body(state, fed))

    def body(self, state: State, fed: Federation) -> dict[str, Tensor]:
        """What is sent beside the heads: the extractor they share, once."""
        if self.share == "none":
            return {}
        return {"body": state.models[:1, fed.layout.columns("~head")]}
