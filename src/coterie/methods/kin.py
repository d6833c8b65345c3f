"""kin: what to use when you do not know which. Every step is proposed cheaply, and then checked.

Ours. Nothing is done because two vectors look alike, but because the clients' own samples, which
the proposal was not made from, say that it helps. From FedClust, one short training and the last
layer of it; from AutoCFL, that clients must have trained equally long before they can be compared;
from IFCA, a client's own loss as the judge; from FedDSMIC, a last local step before use. New is the
noise floor: each client trains on two halves of its data, which says how far apart alike is.
"""

from __future__ import annotations

from dataclasses import field, replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from coterie.core.bounds import Count, NonNegative, Part, Share, Whole, dataclass
from coterie.core.types import Federation, Replies, State, Task
from coterie.methods.group_once import LANDMARKS, kept, landmarks, pick, round_in_groups
from coterie.methods.regrouping import divided, mean_model, trial, united
from coterie.tasks import Gains, Solver, Train, TrainHalves, VerifiedScore, equal_steps
from coterie.words.distance import cosine_distance
from coterie.words.grouping import verified_groups
from coterie.words.mixing import merge, mix, within
from coterie.words.server import ServerOptimiser

DEVIATION = 1.4826  # a standard deviation in median deviations, if rises are normal
LEAST_RISE = 0.01  # a median deviation: losses always differ a little


@dataclass(frozen=True)
class Kin:
    """Group by what holds on both halves of everybody's data, train apart, follow what changes."""

    solver: Solver = Solver(lr=0.05, epochs=2, batch=32)
    fraction: Share = 1.0  # of clients drawn in a round
    warmup_epochs: Count = 10  # of the median client, as steps for everybody, on each half
    gain: Part = 0.05  # what other clusters must save: of the spread, of the clients' loss
    sure: NonNegative = 2.0  # standard errors, over clients, of that
    rise: NonNegative = 4.0  # deviations by which a loss rises beyond the peers': who tries others
    better: Part = 0.1  # of its loss that another model must save a client before it moves
    firm: NonNegative = 3.0  # standard errors, over its samples, of that
    rest: Count = 4  # rounds in which the doubled rise of who tried in vain is halved again
    look: Whole = (
        2  # rounds before a look for other clusters; twice as many after one in vain; 0: never
    )
    follow: bool = True  # move, split and merge by the clients' losses; False: first groups stay
    tune_epochs: Count = 1  # of the last layer on the client's own data, before use, if it helps
    landmarks: Whole = LANDMARKS  # clients grouped at once, others join as newcomers; 0: all
    server: ServerOptimiser = field(default=ServerOptimiser(), kw_only=True)  # of the average

    kind = "clustered"

    @property
    def tuning(self) -> Solver:
        """How a client tunes the last layer."""
        return replace(self.solver, epochs=self.tune_epochs, steps=0)

    @property
    def score(self) -> VerifiedScore:
        """The cluster's model, and what the client's own tuning makes of it where that helps."""
        return VerifiedScore(self.tuning, train="head")

    def warm(self, sizes: Tensor) -> TrainHalves:
        """The two short trainings from the initial model."""
        return TrainHalves(equal_steps(self.solver, self.warmup_epochs, sizes))

    def asks(self, rounds: int, sizes: Tensor) -> list[tuple[Task, int]]:
        """What a client is asked at most, and how often: for its privacy account."""
        return [(self.warm(sizes), 1), (Train(self.solver), rounds)]

    def init(self, fed: Federation) -> State:
        """Nobody is placed before everybody was asked."""
        return self.place(State.nobody(fed.layout.initial, len(fed.clients)), fed)

    def round(self, state: State, fed: Federation) -> State:
        """FedAvg inside each cluster; then those move whom another model fits better."""
        state = self.place(state, fed)
        if not self.follow:
            return round_in_groups(state, fed, self.solver, self.fraction, self.server)
        cohort = fed.sample(self.fraction, among=state.placed)
        w = fed.ask(cohort, Train(self.solver, report=("before",)), state)
        start, state = state, self.server.advance(state, merge(state, w), fed.layout)
        if not w or "fit" not in state.memory:
            return state
        now, (due, gap) = state.round + 1, state.memory["look"].tolist()
        looking = self.look > 0 and now >= due
        before = state.assign
        state, strangers = self.move(state, w, looking, fed)
        state = self.part(start, state, w, strangers, fed)
        if looking:
            state = self.pull_apart(start, state, w, fed)
            state, gap = self.unite(start, state, w, fed), 2 * gap
        if not torch.equal(before, state.assign):  # where something changed, more may
            gap, due = self.look, min(due, now + self.look)
        return state.hold(look=torch.tensor([now + gap if looking else due, gap]))

    # -- who moves

    def move(
        self, state: State, w: Replies, everybody: bool, fed: Federation
    ) -> tuple[State, Tensor]:
        """Whom its model fits worse than it did tries all; who finds none better is a stranger."""
        memory, rise = state.memory, self.rises(state, w)
        bar = memory["bar"][w.clients]
        suspects = w.clients[rise > bar]
        goes, target, stays = self.better_off(state, w.clients if everybody else suspects, fed)
        # Who tried in vain tries again for twice the rise; what it takes falls by and by.
        vain = torch.isin(w.clients, stays) & (rise > bar)
        bar = torch.where(vain, 2 * rise, (bar * 0.5 ** (1 / self.rest)).clamp(min=self.rise))
        least = torch.minimum(memory["fit"][w.clients], w.extra["before"].double())
        return state.reassign(goes, target).hold(
            fit=memory["fit"].index_copy(0, w.clients, least).index_fill(0, goes, torch.inf),
            bar=memory["bar"].index_copy(0, w.clients, bar).index_fill(0, goes, self.rise),
            signature=memory["signature"].index_fill(0, goes, 0),  # of the data it had before
        ), w.clients[vain]

    def rises(self, state: State, w: Replies) -> Tensor:
        """(m,) by how much each loss has risen beyond the peers', in deviations usual today.

        A rise is the logarithm of a loss over the least that the client had here, less the median
        of its cluster, if three or more of it are known. How far they scatter, all clients say.
        """
        now, held = w.extra["before"].double(), state.assign[w.clients]
        least = state.memory["fit"][w.clients]  # inf: nothing to compare with yet
        known = least.isfinite()
        rise = torch.where(known, (now / least).log(), torch.nan)
        for c in held.unique():
            peers = rise[(held == c) & known]
            if len(peers) > 2:
                rise[held == c] -= peers.median()
        usual = DEVIATION * rise.abs().nanmedian().nan_to_num().clamp(min=LEAST_RISE)
        return (rise / usual).nan_to_num(nan=0.0)

    def better_off(
        self, state: State, clients: Tensor, fed: Federation
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Who of these loses clearly less with another cluster's model, which, and who does not."""
        nobody = clients[:0]
        if not len(clients) or state.k == 1:
            return nobody, nobody, clients
        r = fed.ask(clients, Gains(), state, others=state.models[None])
        if not r:
            return nobody, nobody, nobody
        gain, error = r.values.unbind(2)  # (m, k)
        enough = torch.maximum(self.firm * error, self.better * r.extra["loss"][:, None])
        saved, target = torch.where(gain > enough, gain, 0.0).max(1)
        return r.clients[saved > 0], target[saved > 0], r.clients[saved <= 0]

    # -- which clusters there are

    def part(
        self, start: State, state: State, w: Replies, strangers: Tensor, fed: Federation
    ) -> State:
        """Strangers of one cluster leave it together, if that helps them and the others."""
        for c in start.assign[strangers].unique().tolist():
            here = members(start, state, w, c)
            labels = torch.isin(w.clients[here], strangers).long()
            if 2 <= int(labels.sum()) <= len(labels) - 2:
                state = self.divide(state, c, pick(w, here), labels, fed)
        return state

    def pull_apart(self, start: State, state: State, w: Replies, fed: Federation) -> State:
        """Members of a cluster whose halves both pull the same way, and not the others' way."""
        r = fed.ask(w.clients, TrainHalves(self.solver), start)
        pull = r.values - start.of(r.clients)[:, None, fed.layout.columns("head")]  # (m, 2, h)
        for c in range(start.k):
            here = members(start, state, w, c)
            here = here[torch.isin(w.clients[here], r.clients)]
            if len(here) < 4:
                continue
            mine = pull[torch.isin(r.clients, w.clients[here])]
            found = verified_groups(mine[:, 0], mine[:, 1])
            if found.gain > 0 and found.first.any():
                state = self.divide(state, c, pick(w, here), found.first, fed)
        return state

    def divide(self, state: State, c: int, w: Replies, labels: Tensor, fed: Federation) -> State:
        """Cluster c in these groups, if that helps its members; who was not asked looks later."""
        if not self.helps(w, labels, fed):
            return state
        absent = (state.assign == c).index_fill(0, w.clients, False)[: len(fed.clients)]
        bar = state.memory["bar"].masked_fill(absent, -torch.inf)
        return divided(state, c, w, labels).hold(bar=bar)

    def helps(self, w: Replies, labels: Tensor, fed: Federation) -> bool:
        """Whether clients clearly gain by these groups, and none of the groups loses."""
        said = trial(w, labels, self.tuning, fed)
        return (
            said is not None
            and said.gain > self.gain
            and said.sure >= self.sure
            and said.least >= 0
        )

    def unite(self, start: State, state: State, w: Replies, fed: Federation) -> State:
        """The two nearest clusters become one if the clients of both lose by being apart."""
        if state.k == 1:
            return state
        head = fed.layout.columns("head")
        way = state.models[:, head] - fed.layout.initial[head]
        apart = cosine_distance(way).fill_diagonal_(torch.inf)
        c, d = sorted(divmod(int(apart.argmin()), state.k))
        here = torch.cat([members(start, state, w, i) for i in (c, d)]).sort().values
        both = pick(w, here)
        labels = (state.assign[both.clients] == d).long()
        if len(labels.unique()) < 2:
            return state  # one of them was not seen
        said = trial(both, labels, self.tuning, fed)
        if said is None or said.sure > -self.sure or said.most > 0:
            return state
        return united(state, c, d, mean_model(state, c, d, fed.sizes))

    # -- placement

    def place(self, state: State, fed: Federation) -> State:
        """Two short trainings from the initial model; then the cluster that moved alike."""
        if not len(state.unplaced):
            return state
        first = State.shared(fed.layout.initial, len(fed.clients))
        theta = fed.ask(state.unplaced, self.warm(fed.sizes), first)
        if not theta:
            return state
        delta = theta.values - fed.layout.initial[fed.layout.columns("head")]  # (m, 2, h)
        theta = replace(theta, values=delta)
        if "signature" not in state.memory:
            return self.cluster(state, theta, fed)
        state = self.join(state, theta)
        if not self.follow:
            return state
        goes, target, _ = self.better_off(state, theta.clients, fed)
        return state.reassign(goes, target)

    def join(self, state: State, theta: Replies) -> State:
        """Each of these goes to the cluster whose members' first updates point most its way."""
        known = state.memory["signature"]
        placed = state.placed[state.placed < len(known)]  # newcomers have no row of their own
        W = within(state.assign[placed], torch.ones(len(placed)), state.k)
        centres = mix(W, known[placed], keep=known.new_zeros(state.k, known.shape[1]))
        alike = common(theta.values) @ normalize(centres, dim=1).T  # (m, k)
        return state.reassign(theta.clients, alike.argmax(1))

    def cluster(self, state: State, theta: Replies, fed: Federation) -> State:
        """The groups that hold on the other half of everybody's data, or one for all.

        Where peers tell less of a client than its own other half does, its loss must decide: a
        round of training, and a trial.
        """
        some, others = landmarks(theta, self.landmarks, fed)
        found = verified_groups(some.values[:, 0], some.values[:, 1])
        holds = found.gain > self.gain and found.sure >= self.sure
        if holds and found.peers > 1 and not self.follow:
            holds = False  # it takes losses to tell, and nobody is asked for them
        elif holds and found.peers > 1:
            w = fed.ask(
                some.clients, Train(self.solver), State.shared(fed.layout.initial, len(fed.clients))
            )
            labels = found.labels[torch.isin(some.clients, w.clients)]
            holds = bool(w) and self.helps(w, labels, fed)
        labels = found.labels if holds else torch.zeros_like(found.labels)
        n, way = len(fed.clients), common(theta.values)
        D = cosine_distance(common(some.values))
        state = state.regroup(some.clients, labels, fed.layout.initial).hold(
            signature=way.new_zeros(n, way.shape[1]).index_copy(0, theta.clients, way),
            fit=torch.full((n,), torch.inf, dtype=torch.float64),  # the least loss it had here
            bar=torch.full(
                (n,), self.rise, dtype=torch.float64
            ),  # the rise at which it tries others
            look=torch.tensor([self.look, self.look]),  # when, and how long it waits then
            **kept(D, some.clients, n),
        )
        return self.join(state, others)


def members(start: State, state: State, w: Replies, c: int) -> Tensor:
    """Which of those who trained did so for cluster c and are still there: positions in w."""
    here = (start.assign[w.clients] == c) & (state.assign[w.clients] == c)
    return here.nonzero().flatten()


def common(halves: Tensor) -> Tensor:
    """(m, h) the direction that the two halves of each have in common: (m, 2, h)."""
    return normalize(normalize(halves, dim=2).sum(1), dim=1)
