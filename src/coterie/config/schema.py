"""The tables of an experiment file. A field's comment is what `init` and the messages say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar, Literal

from coterie.attacks.attack import Attack
from coterie.core.best_by import Stop
from coterie.core.bounds import (
    Chance,
    Cores,
    Count,
    Decay,
    Minority,
    NonNegative,
    Positive,
    Processes,
    Share,
    Whole,
    dataclass,
)
from coterie.data.kinds import Kind, from_dict

SOLVER = {  # keys of [train] and the fields they set, of the solver and of its optimiser
    "local_epochs": "epochs",
    "local_steps": "steps",
    "batch_size": "batch",
    "lr": "lr",
    "momentum": "optimiser.momentum",
    "weight_decay": "optimiser.weight_decay",
}
OPTIMISER = (
    "momentum",
    "nesterov",
    "weight_decay",
    "beta1",
    "beta2",
    "eps",
)  # keys with its fields
SCHEDULE = {  # keys of [train] and the fields of the schedule that they set
    "schedule": "kind",
    "warmup_rounds": "warmup",
    "lr_decay": "decay",
    "lr_every": "every",
    "lr_end": "end",
}
USUAL = {  # of optimisers that want another value than SGD, where none is given: PyTorch's
    "adam": {"lr": 0.001},
    "adamw": {"lr": 0.001, "weight_decay": 0.01},
}


@dataclass(frozen=True)
class Data:
    """What is learned from, and how clients are tested."""

    reader_keys: ClassVar[tuple[str, ...]] = ("label", "owner", "about", "size", "gray")
    source: str = "digits"  # a set by its name, a folder of class folders, .csv, .npz, ...
    test: Literal["own", "labels", "proportions"] = "own"  # which samples test a client
    test_share: Share = 0.2  # of a client's samples; of the official test set, where 1 is usual
    validation_share: Decay = 0.0  # of what is left to train on: to choose by; 0: none
    pool: Literal["train", "all"] = "train"  # what is divided: training samples, or test ones too
    scaling: Literal["standard", "unit", "none"] = "standard"  # mean 0 and deviation 1, or 0 to 1
    public: Whole = 0  # samples of each class that the server holds, for methods that need them
    label: str | Whole | None = None  # CSV: the column of the label, by name or number
    owner: str | Whole | None = None  # CSV: the column of the owner; folder: "folder", see docs
    about: str | None = None  # CSV: columns that say something of the owner, with commas
    size: Count | tuple[Count, Count] | None = None  # folder: images are resized to this
    gray: bool | None = None  # folder: images are read without their colours
    classes: tuple[str | Whole, ...] | None = None  # only these, by name or number
    limit: Count | None = None  # at most so many training samples
    options: Mapping[str, Any] = field(default_factory=dict)  # whatever else the reader takes

    @property
    def reader(self) -> dict[str, Any]:
        """The options of the reader that were given."""
        named = {k: getattr(self, k) for k in self.reader_keys}
        named |= {"only": self.classes, "limit": self.limit}
        return {**{k: v for k, v in named.items() if v is not None}, **self.options}


@dataclass(frozen=True)
class Partition:
    """Who holds what. `options` are the kind's own fields, those of a composition in sub-tables."""

    kind: str = "iid"  # iid, dirichlet, label-skew, shards, rotation, ... or two joined by +
    clients: Count | None = 20  # how many there are; of natural owners, all if not given
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> Kind:
        """The kind itself, with its fields."""
        return from_dict({"kind": self.kind, **self.options})


@dataclass(frozen=True)
class Model:
    """The network."""

    name: str = "auto"  # a network by its name, "package.module:function", or one for the data
    head: str | None = None  # the layer that is the head; the last linear one if not given
    norm: Literal["group", "batch"] | None = None  # normalisation, where the network has one
    options: Mapping[str, Any] = field(default_factory=dict)  # passed to the network's builder


@dataclass(frozen=True)
class Train:
    """How much is trained, and how."""

    rounds: Count = 20  # rounds of communication
    local_epochs: Count = 2  # passes over its own data that a client makes in a round
    local_steps: Whole = 0  # if given, this many mini-batches instead of epochs
    batch_size: Whole = 32  # samples in a mini-batch; 0: all at once
    lr: Positive = 0.05  # learning rate
    optimiser: Literal["sgd", "adam", "adamw"] = "sgd"  # adam: with lr 0.001, if none is given
    momentum: Decay = 0.0  # sgd: PyTorch's; starts anew every round
    nesterov: bool = False  # sgd: look ahead along the momentum
    weight_decay: NonNegative = 0.0  # L2 penalty; of adamw decoupled
    beta1: Decay = 0.9  # adam, adamw: of the running mean of the gradient
    beta2: Decay = 0.999  # adam, adamw: of its running square
    eps: Positive = 1e-8  # adam, adamw: added to the root of that
    clip: NonNegative = 0.0  # the norm to which a longer gradient is shortened; 0: never
    schedule: Literal["constant", "step", "exponential", "cosine"] = "constant"  # of lr, by rounds
    warmup_rounds: Whole = 0  # rounds in which lr rises evenly to its value, before the schedule
    lr_decay: Share | None = None  # step, exponential: the factor; 0.1 and 0.99 if not given
    lr_every: Count = 10  # step: rounds between two multiplications
    lr_end: Decay = 0.0  # cosine: the share of lr that it falls to
    participation: Share = 1.0  # share of clients drawn in a round
    everybody: Whole = 0  # first rounds in which every client takes part, whatever the share
    stop: Stop | None = None  # take the best round on validation data, and end if none follows
    defaults: Literal["common", "paper"] = "common"  # whose values, where none is given

    @property
    def solver(self) -> dict[str, Any]:
        """The fields of the solver that this table sets, but for its optimiser and schedule."""
        plain = {name: getattr(self, key) for key, name in SOLVER.items() if "." not in name}
        return plain | {"clip": self.clip}

    @property
    def rates(self) -> dict[str, Any]:
        """The fields of the schedule that this table sets."""
        return {name: getattr(self, key) for key, name in SCHEDULE.items()}


@dataclass(frozen=True)
class Server:
    """What the server makes of what clients trained, for methods that average."""

    optimiser: Literal["none", "momentum", "adagrad", "adam", "yogi"] = "none"  # none: the average
    lr: Positive | None = None  # of the server's step; not given: 1 with momentum, else 0.1
    beta1: Decay = 0.9  # of the running mean of the differences; of momentum, the momentum
    beta2: Decay = 0.99  # adam, yogi: of their running square
    tau: Positive = 1e-3  # adagrad, adam, yogi: the smaller, the more adaptive
    merge: Literal["mean", "trimmed-mean", "median", "multi-krum", "norm-clip"] = (
        "mean"  # of each cluster; all but the mean withstand hostile clients
    )
    byzantine: Minority = 0.2  # share of a cluster's answers that a robust merge withstands
    flag: bool = False  # look for suspicious clients; a robust merge always does


@dataclass(frozen=True)
class Privacy:
    """Noise that hides every single sample in what its client sends: differential privacy."""

    epsilon: Positive | None = None  # the most that any client may spend; noise follows from it
    noise_multiplier: Positive | None = None  # deviation over clip; not given: as epsilon needs
    delta: Chance = 1e-5  # the chance with which epsilon may fail; far below 1 over a client's size
    clip: Positive = 1.0  # the norm to which what one sample contributes is shortened

    @property
    def on(self) -> bool:
        """Whether noise was asked for."""
        return self.epsilon is not None or self.noise_multiplier is not None


@dataclass(frozen=True)
class Evaluate:
    """When and against what clients are tested."""

    every: Count = 1  # rounds between two evaluations; the last round always has one
    first: Whole = 0  # first rounds that all have one, whatever `every` is
    last: Whole = 0  # last rounds that all have one
    target: Share | None = None  # accuracy whose first round is reported
    last_k: Count = 10  # rounds whose mean is reported beside the last one
    absent: Literal["last-known"] | None = None  # count who was not tested by its last known value
    metrics: tuple[str, ...] = ()  # beside accuracy and loss: macro_f1, auc, ... or your own
    tuned: Whole = 0  # local epochs before one more test of everybody, after the last round


@dataclass(frozen=True)
class Newcomers:
    """Clients that are held out, and join when the training is over."""

    share: Decay = 0.0  # of the clients; 0: nobody is held out
    epochs: Whole = 5  # of adaptation, tested after each
    shots: tuple[Count, ...] = ()  # also with so many samples of each class


@dataclass(frozen=True)
class Engine:
    """Who does the computing."""

    name: str = "auto"  # serial, pool, stacked, compiled, or the fastest of them here
    workers: Processes = 0  # processes of all but serial; 0: as many as there are cores here
    address: str | None = None  # ray: "auto", "host:port" or "ray://..."; without: this machine
    threads: Cores = 1  # of arithmetic; another number may change the last bits
    deadline: Positive = 600.0  # flower: seconds that clients have to answer a question
    quorum: Share = 0.5  # flower: share of a cohort without which a round is abandoned
    max_abandoned: Count = 3  # flower: attempts at a round before the run ends
    max_weight_share: Share = 0.5  # flower: the most one counts for in a cluster of 3 or more
    connect_timeout: Positive = 300.0  # flower: seconds to wait for clients at the start


@dataclass(frozen=True)
class Output:
    """Where the records of a run go."""

    dir: str = "runs/{date}_{method}"  # the folder; {date}, {method} and {seed} are filled in
    checkpoint_every: Count = 1  # rounds between two checkpoints
    keep: Count = 2  # how many checkpoints are kept
    trackers: tuple[Literal["tensorboard", "mlflow", "wandb"], ...] = ()  # told of every round


@dataclass(frozen=True)
class Config:
    """An experiment with every default resolved."""

    method: str = "kin"  # a method by its name, or "package.module:Class"
    seed: Whole = 0  # every random choice follows from it
    data: Data = Data()
    partition: Partition = Partition()
    model: Model = Model()
    train: Train = Train()
    hyper: Mapping[str, Any] = field(default_factory=dict)  # the method's own table
    server: Server = Server()
    privacy: Privacy = Privacy()
    evaluate: Evaluate = Evaluate()
    newcomers: Newcomers = Newcomers()
    attack: Attack = Attack()
    engine: Engine = Engine()
    output: Output = Output()
    origins: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    notes: tuple[str, ...] = field(default=(), compare=False, repr=False)
