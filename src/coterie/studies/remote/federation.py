"""A real federation from an experiment file: who is waited for, what is agreed, and its run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from coterie.config import Config
from coterie.core import points
from coterie.core.errors import ConfigError, QuorumError
from coterie.core.events import Listener
from coterie.data.dataset import scale
from coterie.data.load import load
from coterie.data.partition import reserve
from coterie.runs import newcomers
from coterie.runs.checkpoint import Checkpoint
from coterie.studies.finished.newcomers import drawn, measured
from coterie.studies.finished.placement import arrive
from coterie.studies.remote.agreement import Agreement, RemotePopulation, agree
from coterie.studies.run import experiment
from coterie.studies.run.result import Result
from coterie.studies.run.train_loop import Gathered

if TYPE_CHECKING:
    from coterie.engines.flower.exchange import Exchange
    from coterie.engines.front import Front

NOTICE = 10.0  # seconds between two messages about clients that are waited for
PATIENCE = ("engine.deadline", "engine.quorum", "engine.max_abandoned", "engine.connect_timeout")


def run_federation(
    grid: Any,
    config: Config,
    folder: Path,
    tell: Listener,
    *,
    resume: bool = False,
    names: Sequence[str] = (),
    registered: Callable[[], Mapping[int, str] | None] = lambda: None,
    check: Callable[[], None] = lambda: None,
    stands: Mapping[str, Any] | None = None,
) -> Result:
    """Train an experiment with whoever is at the far end of a Flower grid, into a folder.

    `names` are the only clients that are let in, if given; `registered` says whose key a node has,
    and turns away who has none of them; `check` raises if the grid is gone while clients are
    waited for; `stands` says where and how the server stands, for whoever serves the run again.
    """
    refuse_few_shots(config)
    refuse_best_round(config)
    refuse_attack(config)
    known = Agreement.load(folder) if resume else None

    def gather(say: Listener, last: Checkpoint | None) -> Gathered:
        """They are waited for, and agree unless a run goes on whose agreement is `known`."""
        from coterie.engines.flower.backend import Retrying
        from coterie.engines.flower.exchange import Exchange

        if stands:
            say({"event": "serving", **stands})
        expected = known.names if known else names
        exchange = Exchange(
            grid, json.dumps(setup(config)), tell=say, registered=registered, expected=expected
        )
        if known:
            exchange.require(known.unfit)
        meet(exchange, config, expected, check)
        agreed = known or hold_out(agree(exchange.clients, expected), config)
        exchange.require(agreed.unfit)
        expect_quorum(exchange, config, expected)
        if not known:
            points.reach("agreed")
            agreed.save(folder)
        elif config.newcomers.share and not agreed.held_out:  # of a version that held out nobody
            say({"event": "warning", "text": "newcomers.share: everybody takes part in this run"})
        exchange.expected = frozenset(agreed.names)
        return Gathered(
            Retrying(experiment.method(config), config.engine.max_abandoned, say),
            RemotePopulation(
                agreed.trained,
                config.data.scaling,
                validates=config.data.validation_share > 0,
            ),
            flower(exchange, config, agreed.trained),
            notes={"engine": "flower"},
            afterwards=lambda result: part(result, exchange, config, agreed, say),
        )

    return experiment.execute(config, folder, tell, resume=resume, gather=gather)


def config_to_resume(
    folder: Path,
    settings: Iterable[tuple[str, Any]],
    allow: Iterable[str],
    *,
    allow_code: bool = False,
) -> Config:
    """The experiment of a federation that is to go on; how long it waits for clients may differ."""
    allowed = {*PATIENCE, *allow}
    return experiment.config_to_resume(folder, settings, allowed, allow_code=allow_code)


def hold_out(agreed: Agreement, config: Config) -> Agreement:
    """The agreement with those drawn who take no part in the training."""
    if not config.newcomers.share:
        return agreed
    _, late = drawn(len(agreed.names), config.newcomers.share, config.seed)
    return replace(agreed, held_out=tuple(agreed.names[i] for i in late.tolist()))


def part(
    result: Result, exchange: Exchange, config: Config, agreed: Agreement, say: Listener
) -> None:
    """After the last round: those who were held out join, and everybody hears that it is over."""
    if agreed.held_out and result.folder:
        everybody = replace(agreed, names=(*agreed.trained.names, *agreed.held_out))
        found = welcome(result, flower(exchange, config, everybody), config, say)
        if found:
            newcomers.record(result.folder, found)
    exchange.farewell()


def welcome(result: Result, fed: Front, config: Config, say: Listener) -> newcomers.Joined | None:
    """Let the last of `fed` join a run that is done, and stays so if too few of them answer."""
    try:
        them = arrive(result.method, result.state, fed)
    except QuorumError as fault:
        say({"event": "warning", "text": f"no newcomer was placed: {fault.what}"})
        return None
    method, epochs = experiment.method(config), range(config.newcomers.epochs + 1)
    rows = [row for e in epochs for row in measured(them, method, e)]
    met = [row if row.cluster is not None else row._replace(samples=0) for row in rows]
    return newcomers.Joined(tuple(met))  # nobody knows what those hold who did not answer


def refuse_few_shots(config: Config) -> None:
    """Refuse newcomers with a few samples of each class: which ones, only they could choose."""
    if config.newcomers.share and config.newcomers.shots:
        raise ConfigError(
            "clients on other machines join with all their samples",
            code="C050",
            where=f"newcomers.shots = {list(config.newcomers.shots)}",
            fix="set newcomers.shots=[]; `coterie newcomers FILE` tries few samples here",
        )


def refuse_attack(config: Config) -> None:
    """Refuse an attack: only clients of a simulation can be told to be hostile."""
    if config.attack.on:
        raise ConfigError(
            "clients on other machines are nobody's to make hostile",
            code="C050",
            where=f'attack.kind = "{config.attack.kind}"',
            fix='set attack.kind="none"; `coterie run FILE` simulates the attack here',
        )


def refuse_best_round(config: Config) -> None:
    """Refuse to take another round than the last: what clients keep for themselves is of that."""
    if config.train.stop is not None:
        raise ConfigError(
            "clients on other machines end with the last round",
            code="C050",
            where="train.stop",
            why="the models they use, and what a method leaves with them, are of the last round "
            "that they were tested in; the server cannot take them back to the best one",
            fix="leave out train.stop; data.validation_share alone shows in metrics.csv which "
            "round was best, and a run of so many rounds ends there",
        )


def flower(exchange: Exchange, config: Config, agreed: Agreement) -> Front:
    """The engine that reaches clients who have agreed."""
    from coterie.engines.flower.backend import Deadlines, federation

    return federation(
        exchange,
        experiment.network(config, agreed.shape, len(agreed.classes)),
        agreed.names,
        classes=len(agreed.classes),
        experiment=agreed.experiment,
        setup=setup(config, agreed),
        deadlines=Deadlines(
            config.engine.deadline,
            config.engine.quorum,
            config.output.checkpoint_every,
            config.output.keep,
        ),
        seed=config.seed,
        public=public_samples(config),
        most=config.engine.max_weight_share,
    )


def setup(config: Config, agreed: Agreement | None = None) -> dict[str, Any]:
    """What every client is told of the experiment; once they agreed, also on what."""
    model, options = config.model, experiment.model_options(config)
    splitting = ["test", "test_share", "scaling", "reader"]
    splitting += ["validation_share"] * bool(config.data.validation_share)
    told: dict[str, Any] = {
        "seed": config.seed,
        "threads": config.engine.threads,
        "data": {key: getattr(config.data, key) for key in splitting},
        "model": {"name": model.name, "head": model.head, "options": options},
    }
    if agreed is not None:
        told |= {"classes": list(agreed.classes), "shape": list(agreed.shape)}
    return told


def meet(
    exchange: Exchange, config: Config, expected: Sequence[str], check: Callable[[], None]
) -> None:
    """Wait until all clients came; at the timeout, go on with a quorum of them or not at all."""
    now = exchange.clock.now
    began, count = now(), len(expected) or config.partition.clients or 1
    told = began
    while True:
        check()
        exchange.look()
        exchange.collect()
        there, over = len(exchange.clients), now() - began
        if there >= count:
            return
        if over > config.engine.connect_timeout:
            break  # with those who are there, if they are enough
        if now() - told >= NOTICE:
            told = now()
            exchange.tell(
                {"event": "waiting", "clients": there, "of": count, "seconds": round(over)}
            )
        exchange.clock.sleep(exchange.clock.poll)
    expect_quorum(exchange, config, expected, over)
    text = f"{there} of {count} clients came in {over:.0f} s; the run starts with them"
    exchange.tell({"event": "warning", "text": text})


def expect_quorum(
    exchange: Exchange, config: Config, expected: Sequence[str], seconds: float | None = None
) -> None:
    """Refuse to go on with fewer clients than a quorum of those who are waited for."""
    there, count = len(exchange.clients), len(expected) or config.partition.clients or 1
    if there and there >= config.engine.quorum * count:
        return
    missing = sorted(set(expected) - exchange.clients.keys())
    came = "can take part" if seconds is None else f"came in {seconds:.0f} s"
    raise QuorumError(
        f"{there} of {count} clients {came}",
        code="Q002",
        where=f"missing: {', '.join(missing[:20])}" if missing else "",
        why=f"engine.quorum = {config.engine.quorum} of them are needed",
        fix="look at what `coterie join` says on their side, then start again",
    )


def public_samples(config: Config) -> Tensor | None:
    """What the server itself holds, for methods that compare models on it: from its own data."""
    if not config.data.public:
        return None
    data = scale(load(config.data.source, **config.data.reader), config.data.scaling)
    _, samples, _ = reserve(data, config.data.public, config.seed)
    return samples
