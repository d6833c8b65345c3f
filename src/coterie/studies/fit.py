"""Train a method on a population, measure every round, and keep what is needed to go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from coterie import engines
from coterie.core import rng
from coterie.core.errors import CheckpointError
from coterie.core.layout import Layout
from coterie.core.loop import evaluate, run
from coterie.core.types import Engine, Method, State
from coterie.core.version import __version__
from coterie.data.population import Population
from coterie.engines.choice import Choice
from coterie.models import factory
from coterie.runs import checkpoint, measure
from coterie.runs.history import History
from coterie.runs.records import RunFolder
from coterie.studies.result import Result, summarise

Event = dict[str, Any]
Listener = Callable[[Event], None]


@dataclass(frozen=True)
class Plan:
    """How a run is measured and kept, whatever it trains."""

    rounds: int
    every: int = 1  # evaluate every so many rounds, and at the end
    last_k: int = 10  # rounds in the mean over the last ones
    target: float | None = None  # accuracy for rounds-to-target
    checkpoint_every: int = 1
    keep: int = 2  # checkpoints kept


def fit(
    method: Method,
    population: Population,
    model: str | nn.Module | Callable[..., nn.Module],
    *,
    rounds: int,
    seed: int = 0,
    head: str | None = None,
    model_options: dict[str, Any] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    engine: str = "auto",
    workers: int = 0,
    address: str | None = None,
    settings: str | None = None,
    on_event: Listener | None = None,
    **plan: Any,
) -> Result:
    """Train `method` for `rounds` rounds and measure every client.

    `model` is a name, a factory or a module; its initial weights follow from `seed`. With `out`,
    everything is recorded in that folder; with `resume`, a run found there is continued to the
    same bits as if it had never stopped. Further keywords are the fields of `Plan`.
    """
    net = factory.build(
        model,
        shape=population.shape,
        classes=population.classes,
        seed=rng.address(seed, "model"),
        **(model_options or {}),
    )
    layout = Layout(net, head=head)
    who = engines.settle(engine, workers, population, layout, method)
    how = Plan(rounds, **plan)
    tell = on_event or (lambda event: None)
    text = settings if settings is not None else describe(method, model, seed, how)
    folder: RunFolder | None = None
    last: checkpoint.Checkpoint | None = None
    if out is not None and resume and checkpoint.rounds(Path(out) / "checkpoints"):
        folder, last = RunFolder.reopen(Path(out), keep=how.keep)
    elif out is not None:
        folder = RunFolder.create(Path(out), text, keep=how.keep)
    with folder or nullcontext():
        if last and engine == "auto":  # as it was started, whatever this machine would suggest
            who = Choice(last.notes["engine"], last.notes["workers"], "as the run was started")
        facts = {} if folder is None else facts_of(text, who, population)
        built = engines.build(who.name, population, layout, seed, who.workers, address)
        with closing(built) as fed:
            if folder and last:
                for warning in changes(facts, last.notes):
                    for hear in (folder.event, tell):
                        hear({"event": "warning", "text": warning})
                fed.restore(last.memories)
            saved = last.state if last else None
            return drive(method, population, fed, how, tell, folder, saved, facts, str(who))


def facts_of(settings: str, who: Choice, population: Population) -> dict[str, Any]:
    """What a checkpoint notes of the world it was made in."""
    return {
        "settings": settings,
        "coterie": __version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "engine": who.name,
        "workers": who.workers,
        "population": population.key,
    }


def drive(
    method: Method,
    population: Population,
    fed: Engine,
    plan: Plan,
    tell: Listener,
    folder: RunFolder | None = None,
    saved: State | None = None,
    facts: dict[str, Any] | None = None,
    engine: str = "",
) -> Result:
    """The loop of `run`, with what happens between its rounds: measure, record, save, tell."""

    def say(event: Event) -> None:
        if folder:
            folder.event(event)
        tell(event)

    history = folder.history() if folder and saved else History()
    previous = saved.assign if saved else None
    names = fed.names
    say(
        {
            "event": "resume" if saved else "start",
            "round": saved.round if saved else 0,
            "rounds": plan.rounds,
            "clients": len(names),
            "parameters": fed.layout.size,
            "method": repr(method),
            "engine": engine,
        }
    )
    for note in (*population.notes, *peculiar(population), *fed.notes) if saved is None else ():
        say({"event": "warning", "text": note})
    began = clock = time.perf_counter()
    waiting = torch.empty(0, dtype=torch.long)
    clustering = measure.LastFit()
    state, states = saved, run(method, fed, plan.rounds, saved)
    if saved:
        next(states)  # the state that was saved: it is measured already
    for state in states:
        asked, fed.ledger[:] = list(fed.ledger), []
        truth = population.at(state.round).group
        rows = measure.traffic(state, asked, names)
        rows += measure.grouped(state, previous, truth, clustering)
        previous = state.assign
        due = state.round % plan.every == 0 or state.round >= plan.rounds
        trained = time.perf_counter()
        if due:
            scores = evaluate(method, state, fed)
            fed.ledger.clear()  # a test is not traffic
            rows = measure.tested(state, scores, names, fed.sizes) + rows
        history.rows += rows
        if folder:
            folder.record(state, rows, names, truth)
            if state.round % plan.checkpoint_every == 0 or state.round >= plan.rounds:
                folder.checkpoint(state, fed.memories(), facts or {})
        for entry in asked:
            for i, why in entry.rejected.items():
                say({"event": "rejected", "round": state.round, "client": names[i], "why": why})
        if len(state.unplaced) and not torch.equal(state.unplaced, waiting):
            waiting = state.unplaced
            who = [names[i] for i in waiting.tolist()]
            say({"event": "unplaced", "round": state.round, "clients": who})
        now = time.perf_counter()
        say(
            {
                "event": "round",
                "round": state.round,
                "rounds": plan.rounds,
                "seconds": round(now - clock, 4),
                "evaluate_seconds": round(now - trained, 4),
                "asked": measure.questions(asked),
            }
            | headline(history, state.round)
        )
        clock = now
    assert state is not None  # run yields at least where it starts
    seconds = round(time.perf_counter() - began, 3)
    summary = {"method": repr(method), "rounds": plan.rounds, "clients": len(names)}
    summary |= summarise(
        history,
        clients=len(names),
        last_k=plan.last_k,
        target=plan.target,
        drift=population.partition.moves_at,
    )
    if folder:
        folder.summary(summary | {"seconds": seconds})
    say({"event": "done", "seconds": seconds, "folder": str(folder.path) if folder else None})
    return Result(method, population, fed, state, history, summary, folder.path if folder else None)


def peculiar(population: Population) -> list[str]:
    """Clients that a reader should know of: with one sample, or with one class among others."""
    counts = population.label_counts()
    found = {
        "a single training sample": population.sizes == 1,
        "a single class": ((counts > 0).sum(1) == 1) & (population.sizes > 1),
    }
    return [
        f"{int(them.sum())} of {len(counts)} clients hold {what}: "
        + ", ".join(population.names[i] for i in them.nonzero().flatten()[:10].tolist())
        + (", ..." if them.sum() > 10 else "")
        for what, them in found.items()
        if them.any()
    ]


def headline(history: History, at: int) -> dict[str, float]:
    """The numbers of one round that a person watches."""
    shown = {
        "accuracy_mean": "accuracy",
        "accuracy_worst": "worst",
        "clusters": "clusters",
        "ari": "ari",
        "bytes_down": "bytes_down",
        "bytes_up": "bytes_up",
    }
    found: dict[str, float] = {}
    for row in reversed(history.rows):
        if row.round != at:
            break
        if not row.client and row.metric in shown:
            found.setdefault(shown[row.metric], row.value)  # "after" comes last and is found first
    return found


def changes(now: dict[str, Any], then: Any) -> list[str]:
    """What differs from the run that was saved; other data is refused, the rest is told."""
    if now["population"] != then["population"]:
        raise CheckpointError(
            "the clients' data are not the ones this run was started with",
            code="K008",
            why="their fingerprint differs: another file, partition, seed or scaling",
            fix="put the data back, or start a new run",
        )
    return [
        f"{key} was {then[key]!r} and is {now[key]!r} now: "
        "the result may not be bit-identical to an uninterrupted run"
        for key in now.keys() - {"settings", "population"}
        if now[key] != then[key]
    ]


def describe(method: Method, model: object, seed: int, plan: Plan) -> str:
    """The run.toml of a run that was started from Python, for people to read."""
    lines = {"method": repr(method), "model": str(model), "seed": seed, "rounds": plan.rounds}
    body = "\n".join(
        f"{key} = {value if isinstance(value, int) else repr(str(value))}"
        for key, value in lines.items()
    )
    return (
        "# Started from Python; continue it with coterie.fit(..., resume=True).\n"
        f'started_from = "python"\n{body}\n'
    )
