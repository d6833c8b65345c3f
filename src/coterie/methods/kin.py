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
from coterie.methods.moving import Wishes, peers, pulls
from coterie.methods.regrouping import divided, mean_model, trial, united
from coterie.tasks import Gains, Solver, Train, TrainHalves, VerifiedScore, equal_steps
from coterie.words.distance import cosine_distance
from coterie.words.grouping import verified_groups
from coterie.words.mixing import mix, within
from coterie.words.server import ServerOptimiser

DEVIATION = 1.4826  # a standard deviation in median deviations, if rises are normal
LEAST_RISE = 0.01  # a median deviation: losses always differ a little
TRIES = 2  # models that a client tries at once, if it is pulled to as many


@dataclass(frozen=True)
class Kin:
    """Group by what holds on both halves of everybody's data, train apart, follow what changes."""

    solver: Solver = Solver(lr=0.05, epochs=2, batch=32)
    fraction: Share = 1.0  # of clients drawn in a round
    warmup_epochs: Count = 10  # of the median client, as steps for everybody, on each half
    warmup_steps: Whole = 150  # and at least so many: from few samples little is learned in epochs
    gain: Part = 0.05  # what other clusters must save: of the spread, of the clients' loss
    sure: NonNegative = 2.0  # standard errors, over clients, of that
    better: Part = 0.1  # of its loss that another model must save a client before it moves
    firm: NonNegative = 3.0  # standard errors, over its samples, of that
    rise: NonNegative = 4.0  # deviations by which a stranger's loss rises beyond its peers'
    look: Whole = (
        2  # rounds before a look for other clusters; twice as many after one in vain; 0: never
    )
    follow: bool = True  # move, split and merge by the clients' losses; False: first groups stay
    tune_epochs: Count = 5  # of the last layer on its own data, before use; 1 if so many harm
    landmarks: Whole = LANDMARKS  # clients grouped at once, others join as newcomers; 0: all
    server: ServerOptimiser = field(default=ServerOptimiser(), kw_only=True)  # of the average

    kind = "clustered"

    @property
    def tuning(self) -> Solver:
        """How a client tunes a model before it uses it, or judges by it who belongs together."""
        return replace(self.solver, epochs=self.tune_epochs, steps=0)

    @property
    def touch(self) -> Solver:
        """How a client tunes models among which it moves: little, lest it makes them all alike."""
        return replace(self.solver, epochs=1, steps=0)

    @property
    def score(self) -> VerifiedScore:
        """The cluster's model, and what the client's own tuning makes of it, long or short."""
        return VerifiedScore(self.tuning, train="head")

    def warm(self, sizes: Tensor) -> TrainHalves:
        """The two short trainings from the initial model."""
        warm = equal_steps(self.solver, self.warmup_epochs, sizes)
        return TrainHalves(replace(warm, steps=max(warm.steps, self.warmup_steps)))

    def asks(self, rounds: int, sizes: Tensor) -> list[tuple[Task, int]]:
        """What a client is asked at most, and how often: for its privacy account."""
        return [(self.warm(sizes), 1), (Train(self.solver), rounds)]

    def init(self, fed: Federation) -> State:
        """Nobody is placed before everybody was asked."""
        return self.place(State.nobody(fed.layout.initial, len(fed.clients)), fed)

    def round(self, state: State, fed: Federation) -> State:
        """FedAvg inside each cluster, without those whom another cluster's model fits better."""
        state = self.place(state, fed)
        if not self.follow:
            return round_in_groups(state, fed, self.solver, self.fraction, self.server)
        if "look" not in state.memory:
            return state  # nobody has answered yet
        now, (due, gap) = state.round + 1, state.memory["look"].tolist()
        looking = self.look > 0 and now >= due
        task = Train(self.solver, report=("before", "halves") if looking else ("before",))
        w = fed.ask(fed.sample(self.fraction, among=state.placed), task, state)
        if not w:
            return state
        start, state = state, self.move(state, w, looking, fed)
        w = pick(w, (state.assign[w.clients] == start.assign[w.clients]).nonzero().flatten())
        state = self.server.advance(state, self.server.merged(state, w), fed.layout)
        state = self.part(start, state, w, fed)
        if looking:
            state = self.pull_apart(start, state, w, fed)
            state, gap = self.unite(start, state, w, fed), 2 * gap
        if state.k != start.k:  # where something changed, more may
            gap, due = self.look, min(due, now + self.look)
        return state.hold(look=torch.tensor([now + gap if looking else due, gap]))

    # -- who moves

    def move(self, state: State, w: Replies, again: bool, fed: Federation) -> State:
        """Whose training led towards another cluster's model tries it, and moves if it is better.

        Who tried in vain tries again if it is pulled harder, if somebody moved since, or at a look.
        """
        pull, toward = pulls(state, w).sort(1, descending=True)  # (m, k)
        hardest, vain = pull[:, 0], state.memory["vain"] * (not again)
        trying = hardest > vain[w.clients]
        several = min(TRIES, int((pull[trying] > 0).any(0).sum()))
        wishes = self.better_off(state, w.clients[trying], toward[trying, :several], fed)
        goes, target, *_ = self.apart(state, wishes, w, fed)
        vain = vain.index_copy(0, w.clients[trying], hardest[trying])
        return state.reassign(goes, target).hold(
            vain=vain * (not len(goes)),
            fit=state.memory["fit"].index_fill(0, goes, torch.inf),
            signature=state.memory["signature"].index_fill(0, goes, 0),  # of its data before
        )

    def better_off(self, state: State, clients: Tensor, others: Tensor, fed: Federation) -> Wishes:
        """Who of these loses clearly less with one of these clusters' models."""
        if not others.numel():
            return Wishes.nobody()
        r = fed.ask(clients, Gains(self.touch), state, others=state.models[others])
        if not r:
            return Wishes.nobody()
        others, loss = others[torch.isin(clients, r.clients)], r.extra["loss"]
        gain, error = r.values.unbind(2)  # (m, j)
        clear = gain > self.enough(error, loss[:, None])
        best = torch.where(clear, gain, -torch.inf).argmax(1, keepdim=True)
        target, saved, unsure = (t.gather(1, best)[:, 0] for t in (others, gain, error))
        return Wishes(r.clients, target, saved, unsure, loss).of(clear.any(1))

    def enough(self, error: Tensor, loss: Tensor) -> Tensor:
        """What a model must save before somebody moves."""
        return torch.maximum(self.firm * error, self.better * loss)

    def apart(self, state: State, wishes: Wishes, w: Replies, fed: Federation) -> Wishes:
        """Of these, whose own loss has risen, or who gains clearly more than its peers would.

        A model by which all of them would gain as much is only ahead of theirs, as it may be where
        labels overlap, and soon it will be behind. Nobody holds back who is alone in its cluster.
        """
        held, rows = state.assign[wishes.clients], torch.searchsorted(w.clients, wishes.clients)
        least = state.memory["fit"][wishes.clients]
        goes = w.extra["before"].double()[rows] > least + self.better * least
        goes |= state.assign[state.placed].bincount()[held] == 1
        for c in held[~goes].unique():
            mine = ((held == c) & ~goes).nonzero().flatten()
            asked = peers(state, wishes, w, int(c), fed)
            targets, which = wishes.target[mine].unique(return_inverse=True)
            others = state.models[targets].expand(len(asked), -1, -1)
            if len(asked) and (r := fed.ask(asked, Gains(self.touch), state, others=others)):
                theirs, error = r.values.unbind(2)  # (p, j)
                more = wishes.saved[mine] - theirs.quantile(0.5, 0)[which]  # one may lie
                unsure = (wishes.error[mine] ** 2 + (error**2).mean(0)[which] / len(r)) ** 0.5
                goes[mine] = more > self.enough(unsure, wishes.loss[mine])
        return wishes.of(goes)

    # -- which clusters there are

    def part(self, start: State, state: State, w: Replies, fed: Federation) -> State:
        """Strangers of one cluster leave it together, if that helps them and the others."""
        rise, now = self.rises(state, w), w.extra["before"].double()
        fit = state.memory["fit"]
        state = state.hold(fit=fit.index_copy(0, w.clients, torch.minimum(fit[w.clients], now)))
        for c in start.assign[w.clients[rise > self.rise]].unique().tolist():
            here = members(start, state, w, c)
            labels = (rise[here] > self.rise).long()
            if 2 <= int(labels.sum()) <= len(labels) - 2:
                state = self.divide(state, c, pick(w, here), labels, fed)
                judged = here[labels == 1]  # in vain or not, this is what they lose from now on
                fit = state.memory["fit"].index_copy(0, w.clients[judged], now[judged])
                state = state.hold(fit=fit)
        return state

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

    def pull_apart(self, start: State, state: State, w: Replies, fed: Federation) -> State:
        """Members of a cluster whose halves both pull the same way, and not the others' way."""
        head = fed.layout.columns("head")
        for c in range(start.k):
            mine = pick(w, members(start, state, w, c))
            if len(mine) < 4:
                continue
            found = verified_groups(*(mine.extra["halves"] - start.models[c, head]).unbind(1))
            if found.sure >= self.sure and found.first.any():
                state = self.divide(state, c, mine, found.first, fed)
        return state

    def divide(self, state: State, c: int, w: Replies, labels: Tensor, fed: Federation) -> State:
        """Cluster c in these groups, if that helps its members; who was not asked stays in c."""
        return divided(state, c, w, labels, self.server) if self.helps(w, labels, fed) else state

    def helps(self, w: Replies, labels: Tensor, fed: Federation) -> bool:
        """Whether clients clearly gain by these groups, and none of the groups loses."""
        said = trial(w, labels, self.tuning, fed, self.server)
        return (
            said is not None
            and said.gain > self.gain
            and said.sure >= self.sure
            and said.least >= 0
        )

    def unite(self, start: State, state: State, w: Replies, fed: Federation) -> State:
        """The two nearest clusters become one if the clients of both lose by being apart."""
        seen = [members(start, state, w, c) for c in range(state.k)]
        many = torch.tensor([len(here) > 1 for here in seen])
        if many.sum() < 2:
            return state
        head = fed.layout.columns("head")
        apart = cosine_distance(state.models[:, head] - fed.layout.initial[head])
        apart = apart.fill_diagonal_(torch.inf).masked_fill(~(many & many[:, None]), torch.inf)
        c, d = sorted(divmod(int(apart.argmin()), state.k))
        both = pick(w, torch.cat([seen[c], seen[d]]).sort().values)
        labels = (state.assign[both.clients] == d).long()
        said = trial(both, labels, self.tuning, fed, self.server)
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
        nearest = self.nearest(state, theta)
        state = state.reassign(theta.clients, nearest[:, 0])
        if not self.follow:
            return state
        wishes = self.better_off(state, theta.clients, nearest[:, 1 : 1 + TRIES], fed)
        return state.reassign(wishes.clients, wishes.target)

    def nearest(self, state: State, theta: Replies) -> Tensor:
        """(m, k) the clusters, those first whose members' first updates point most its way."""
        known = state.memory["signature"]
        placed = state.placed[state.placed < len(known)]  # newcomers have no row of their own
        W = within(state.assign[placed], torch.ones(len(placed)), state.k)
        centres = mix(W, known[placed], keep=known.new_zeros(state.k, known.shape[1]))
        alike = common(theta.values) @ normalize(centres, dim=1).T
        return alike.argsort(1, descending=True)

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
            vain=torch.zeros(n),  # the pull at which it tried others in vain
            look=torch.tensor([self.look, self.look]),  # when, and how long it waits then
            **kept(D, some.clients, n),
        )
        return state.reassign(others.clients, self.nearest(state, others)[:, 0])


def members(start: State, state: State, w: Replies, c: int) -> Tensor:
    """Which of those who trained did so for cluster c and are still there: positions in w."""
    here = (start.assign[w.clients] == c) & (state.assign[w.clients] == c)
    return here.nonzero().flatten()


def common(halves: Tensor) -> Tensor:
    """(m, h) the direction that the two halves of each have in common: (m, 2, h)."""
    return normalize(normalize(halves, dim=2).sum(1), dim=1)
