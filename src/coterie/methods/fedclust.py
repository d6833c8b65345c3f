"""FedClust: one-shot clustering on the weights of the final layer.

Islam, Javaherian, Xu, Yuan, Chen, Tzeng: FedClust: Tackling Data Heterogeneity in Federated
Learning through Weight-Driven Client Clustering. ICPP 2024.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Literal

from torch import Tensor
from torch.nn.functional import normalize

from coterie.core.bounds import Count, Positive, Share, Whole, dataclass
from coterie.core.errors import ConfigError
from coterie.core.types import Federation, Replies, State, Task
from coterie.methods.group_once import LANDMARKS, kept, landmarks, round_in_groups
from coterie.tasks import SGD, Score, Solver, Train, equal_steps
from coterie.words.distance import cosine_distance, l2
from coterie.words.grouping import agglomerate, nearest
from coterie.words.mixing import mix, within
from coterie.words.server import ServerOptimiser


@dataclass(frozen=True)
class FedClust:
    """Every client trains once from the initial model and sends its final layer; those alike share.

    The paper leaves the threshold to the user. Here it is a number (`threshold`, on Eq. 3's L2
    distances), a number of clusters (`clusters`), or, with neither, read from the data: the largest
    jump in the merging heights of the cosine distances between final-layer updates.
    """

    solver: Solver = Solver(lr=0.01, optimiser=SGD(momentum=0.5), epochs=10, batch=10)
    fraction: Share = 0.1  # R, of clients drawn in a round
    threshold: Positive | None = None  # lambda: merge while the linkage distance is at most this
    clusters: Whole = 0  # if given, cut the tree into this many clusters
    distance: Literal["auto", "l2", "update_cosine"] = "auto"  # auto: Eq. 3 for a given threshold
    linkage: Literal["average", "single", "complete"] = "average"  # not stated by the paper
    warmup_epochs: Count = 10  # E_w, of the training in round 0
    warmup: Literal["steps", "epochs"] = "steps"  # steps: as many for everybody, whatever its size
    attach: bool = True  # with neither threshold nor clusters: join singletons to the nearest group
    landmarks: Whole = LANDMARKS  # clients grouped at once, others join as newcomers; 0: all
    server: ServerOptimiser = field(default=ServerOptimiser(), kw_only=True)  # of the average

    kind = "clustered"
    score = Score()  # every client tests its cluster's model

    @classmethod
    def paper(cls, *, threshold: float | None = None, clusters: int = 0) -> FedClust:
        """The method as printed: Eq. 3, a cut by hand, and a warm-up of as many epochs for all."""
        if threshold is None and not clusters:
            fix = "FedClust.paper(threshold=2.0), or clusters=4, the best on Fashion-MNIST"
            raise ConfigError("the paper's threshold is for you to choose", code="C060", fix=fix)
        return cls(threshold=threshold, clusters=clusters, distance="l2", warmup="epochs")

    @property
    def by_angle(self) -> bool:
        """Whether clients are compared by the angle between what they added to the final layer."""
        chosen = self.threshold is None and not self.clusters
        return self.distance == "update_cosine" or (self.distance == "auto" and chosen)

    def asks(self, rounds: int, sizes: Tensor) -> list[tuple[Task, int]]:
        """What a client is asked at most, and how often: for its privacy account."""
        return [(self.warm(sizes), 1), (Train(self.solver), rounds)]

    def init(self, fed: Federation) -> State:
        """Round 0 only clusters."""
        return self.place(State.nobody(fed.layout.initial, len(fed.clients)), fed)

    def round(self, state: State, fed: Federation) -> State:
        """FedAvg inside each cluster (Algorithm 1, lines 7-15)."""
        state = self.place(state, fed)
        return round_in_groups(state, fed, self.solver, self.fraction, self.server)

    def place(self, state: State, fed: Federation) -> State:
        """Train from theta^0, send the final layer; join the nearest cluster of round 0 (Eq. 4)."""
        if not len(state.unplaced):
            return state
        first = State.shared(fed.layout.initial, len(fed.clients))
        theta = fed.ask(state.unplaced, self.warm(fed.sizes), first)
        if not theta:
            return state
        if "centres" not in state.memory:
            return self.cluster(state, theta, fed)
        return self.join(state, theta, fed)

    def join(self, state: State, theta: Replies, fed: Federation) -> State:
        """Eq. 4: each of these goes to the cluster whose mean layer is nearest, by its distance."""
        centres = state.memory["centres"]
        if not self.by_angle:
            return state.reassign(theta.clients, nearest(theta.values, centres))
        first = fed.layout.initial[fed.layout.columns("head")]
        alike = normalize(theta.values - first, dim=1) @ normalize(centres - first, dim=1).T
        return state.reassign(theta.clients, alike.argmax(1))

    def cluster(self, state: State, theta: Replies, fed: Federation) -> State:
        """Distances, tree, cut; every cluster starts from theta^0 and remembers its mean layer."""
        some, others = landmarks(theta, self.landmarks, fed)
        D = self.distances(some.values, fed)  # (m, m)
        k = min(self.clusters, len(D))
        labels = agglomerate(D, self.threshold, k, self.linkage, self.attach)
        centres = mix(within(labels, some.counted(labels), int(labels.max()) + 1), some.values)
        state = state.regroup(some.clients, labels, fed.layout.initial).hold(
            centres=centres,
            **kept(D, some.clients, len(fed.clients)),
        )
        return self.join(state, others, fed)

    def distances(self, theta: Tensor, fed: Federation) -> Tensor:
        """Eq. 3, or the angle between what the clients added to the final layer of theta^0."""
        if not self.by_angle:
            return l2(theta)
        return cosine_distance(theta - fed.layout.initial[fed.layout.columns("head")])

    def warm(self, sizes: Tensor) -> Train:
        """Round 0's training, of which only the final layer is sent."""
        if self.warmup == "epochs":
            solver = replace(self.solver, epochs=self.warmup_epochs, steps=0)
        else:
            solver = equal_steps(self.solver, self.warmup_epochs, sizes)
        return Train(solver, upload="head")
