"""A real federation from an experiment file: who is waited for, what is agreed, and the run."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from coterie import config as configs
from coterie.config import Config
from coterie.core import storage
from coterie.core.errors import ConfigError, QuorumError
from coterie.core.layout import Layout
from coterie.core.rng import address
from coterie.core.version import __version__
from coterie.data.dataset import scale
from coterie.data.load import load
from coterie.data.partition import reserve
from coterie.data.population import Population
from coterie.models import factory
from coterie.runs import checkpoint
from coterie.runs.records import RunFolder
from coterie.studies import experiment
from coterie.studies.fit import Listener, Plan, changes, drive
from coterie.studies.result import Result

if TYPE_CHECKING:
    from coterie.engines.flower.exchange import Exchange

NOTICE = 10.0  # seconds between two messages about clients that are waited for
PATIENCE = ("engine.deadline", "engine.quorum", "engine.max_abandoned", "engine.connect_timeout")


@dataclass(frozen=True)
class Agreement:
    """What holds for the whole of a run, however often its server is started."""

    experiment: str
    names: tuple[str, ...]
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    sizes: tuple[int, ...]  # 0: it was not there at the start

    def save(self, file: Path) -> None:
        """Keep it."""
        storage.replace_file(file, (json.dumps(vars(self), indent=1) + "\n").encode())

    @classmethod
    def load(cls, file: Path) -> Agreement:
        """Read it back."""
        read = json.loads(file.read_text())
        return cls(read.pop("experiment"), **{name: tuple(v) for name, v in read.items()})


class Remote(Population):
    """Clients whose data are elsewhere: their names and sizes, and nothing to look at."""

    def __init__(self, agreed: Agreement) -> None:
        self.agreed = agreed
        self.public = None
        self.partition: Any = Still()

    def __len__(self) -> int:
        return len(self.agreed.names)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the clients."""
        return self.agreed.names

    @property
    def sizes(self) -> Tensor:
        """(n,) training samples of each client, float64."""
        return torch.tensor(self.agreed.sizes, dtype=torch.float64)

    @property
    def group(self) -> None:
        """Nobody planted one."""

    @property
    def classes(self) -> int:
        """How many classes the labels have."""
        return len(self.agreed.classes)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self.agreed.classes

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return self.agreed.shape

    @property
    def notes(self) -> tuple[str, ...]:
        """Nothing was repaired here."""
        return ()

    @property
    def key(self) -> str:
        """What the run may rely on when it is resumed."""
        return json.dumps([self.agreed.experiment, self.agreed.classes, self.agreed.shape])

    def at(self, round: int) -> Remote:
        """The same in every round."""
        return self

    def label_counts(self) -> Tensor:
        """(n, K) unknown: zeros."""
        return torch.zeros(len(self), self.classes, dtype=torch.long)


class Still:
    """A partition of which nothing is known."""

    moves_at = 0


def setup(config: Config, agreed: Agreement | None = None) -> dict[str, Any]:
    """What every client is told of the experiment."""
    data = config.data
    told: dict[str, Any] = {
        "seed": config.seed,
        "threads": config.engine.threads,
        "data": {
            "test": data.test,
            "test_share": data.test_share,
            "scaling": data.scaling,
            "reader": data.reader,
        },
        "model": {
            "name": config.model.name,
            "head": config.model.head,
            "options": experiment.model_options(config),
        },
    }
    if agreed is not None:
        told |= {"classes": list(agreed.classes), "shape": list(agreed.shape)}
    return told


def meet(
    desk: Exchange, config: Config, expected: Sequence[str], check: Callable[[], None]
) -> None:
    """Wait until all clients came; at the timeout, go on with a quorum of them or not at all."""
    began, count = time.monotonic(), len(expected) or config.partition.clients or 1
    told = began
    while True:
        check()
        desk.look()
        desk.collect()
        there, over = len(desk.clients), time.monotonic() - began
        if there >= count:
            return
        if over > config.engine.connect_timeout:
            break
        if time.monotonic() - told >= NOTICE:
            told = time.monotonic()
            desk.tell({"event": "waiting", "clients": there, "of": count, "seconds": round(over)})
        desk.clock.sleep(desk.clock.poll)
    missing = sorted(set(expected) - desk.clients.keys())
    if there == 0 or there < config.engine.quorum * count:
        raise QuorumError(
            f"{there} of {count} clients came in {over:.0f} s",
            code="Q002",
            where=f"missing: {', '.join(missing[:20])}" if missing else "",
            why=f"engine.quorum = {config.engine.quorum} of them are needed",
            fix="look at what coterie join says on their side, then start again",
        )
    text = f"{there} of {count} clients came in {over:.0f} s; the run starts with them"
    desk.tell({"event": "warning", "text": text})


def agree(desk: Exchange, expected: Iterable[str]) -> Agreement:
    """One set of classes and one shape for all; names in an order that everybody would choose."""
    guests = desk.clients
    shapes = {g.shape for g in guests.values()}
    if len(shapes) > 1:
        raise ConfigError(
            "the clients' samples have different shapes",
            code="C051",
            where="\n".join(f"{n}: {g.shape}" for n, g in sorted(guests.items())[:20]),
            fix="bring them to one shape; data.size resizes images",
        )
    kinds = {g.classes for g in guests.values()}
    classes = next(iter(kinds))
    if len(kinds) > 1:
        classes = tuple(sorted({c for kind in kinds for c in kind}, key=natural))
    names = tuple(sorted({*expected, *guests}, key=natural))
    sizes = tuple(guests[n].samples if n in guests else 0 for n in names)
    return Agreement(secrets.token_hex(16), names, classes, next(iter(shapes)), sizes)


def natural(name: str) -> tuple[int, int, str]:
    """Numbers by their value and before words.

    >>> sorted(["10", "b", "9"], key=natural)
    ['9', '10', 'b']
    """
    return (0, int(name), name) if name.isdecimal() else (1, 0, name)


def conduct(
    grid: Any,
    config: Config,
    folder: Path,
    tell: Listener,
    *,
    resume: bool = False,
    names: Sequence[str] = (),
    registered: Callable[[], Mapping[int, str]] = dict,
    check: Callable[[], None] = lambda: None,
) -> Result:
    """Train an experiment with whoever is at the far end of a grid, into a folder.

    `names` are the only clients that are let in, if given; `registered` says whose key a node has.
    """
    from coterie.engines.flower.backend import Deadlines, federation
    from coterie.engines.flower.exchange import Exchange
    from coterie.engines.flower.retry import Retrying

    torch.set_num_threads(config.engine.threads)
    settings = configs.resolved(config)
    with ExitStack() as stack:
        run, saved = opened(folder, settings, config.output.keep, resume)
        stack.enter_context(run)

        def say(event: dict[str, Any]) -> None:
            run.event(event)
            tell(event)

        file = folder / "federation.json"
        agreed = Agreement.load(file) if resume and file.exists() else None
        expected = agreed.names if agreed else names
        desk = Exchange(
            grid, json.dumps(setup(config)), tell=say, registered=registered, expected=expected
        )
        meet(desk, config, expected, check)
        if agreed is None:
            agreed = agree(desk, expected)
            agreed.save(file)
        desk.expected = frozenset(agreed.names)
        told = setup(config, agreed)
        net = factory.build(
            config.model.name,
            shape=agreed.shape,
            classes=len(agreed.classes),
            seed=address(config.seed, "model"),
            **experiment.model_options(config),
        )
        fed = federation(
            desk,
            Layout(net, head=config.model.head),
            agreed.names,
            classes=len(agreed.classes),
            experiment=agreed.experiment,
            setup=told,
            deadlines=Deadlines(
                config.engine.deadline,
                config.engine.quorum,
                config.engine.max_abandoned,
                config.output.checkpoint_every,
                config.output.keep,
            ),
            seed=config.seed,
            public=public_samples(config),
        )
        population = Remote(agreed)
        facts = {
            "settings": settings,
            "coterie": __version__,
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "engine": "flower",
            "population": population.key,
        }
        for warning in changes(facts, saved.notes) if saved else ():
            say({"event": "warning", "text": warning})
        method = Retrying(experiment.method(config), config.engine.max_abandoned, say)
        plan = Plan(
            config.train.rounds,
            config.evaluate.every,
            config.evaluate.last_k,
            config.evaluate.target,
            config.output.checkpoint_every,
            config.output.keep,
        )
        state = saved.state if saved else None
        return drive(method, population, fed, plan, tell, run, state, facts)


def opened(
    folder: Path, settings: str, keep: int, resume: bool
) -> tuple[RunFolder, checkpoint.Checkpoint | None]:
    """The folder of a run, new or put back to its last whole round."""
    if resume and checkpoint.rounds(folder / "checkpoints"):
        run, saved = RunFolder.reopen(folder, keep=keep)
        if (folder / "run.toml").read_text() != settings:
            storage.replace_file(folder / "run.toml", settings.encode())
        return run, saved
    return RunFolder.create(folder, settings, keep=keep), None


def resumed(folder: Path, settings: Iterable[tuple[str, Any]], allow: Iterable[str]) -> Config:
    """The experiment of a run that is to go on; only what was allowed may differ."""
    config = experiment.config_of(folder, settings)
    if checkpoint.rounds(folder / "checkpoints"):
        saved, _ = checkpoint.latest(folder / "checkpoints")
        allowed = {"train.rounds", *PATIENCE, *allow}
        experiment.refuse_changes(saved.notes["settings"], configs.resolved(config), allowed)
    return config


def public_samples(config: Config) -> Tensor | None:
    """What the server itself holds, for methods that compare models on it: from its own data."""
    if not config.data.public:
        return None
    data = scale(load(config.data.source, **config.data.reader), config.data.scaling)
    _, samples, _ = reserve(data, config.data.public, config.seed)
    return samples
