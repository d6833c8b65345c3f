"""The rounds of a run, and what happens between them: measure, record, save, tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coterie.attacks.attackers import NOBODY, Attackers
from coterie.core import best_by
from coterie.core.events import Event, Listener
from coterie.core.loop import evaluate, run
from coterie.core.metric_names import short
from coterie.core.model_kind import declared, kind_of
from coterie.core.types import VALIDATION, Engine, Method, State
from coterie.data.population import Population
from coterie.runs import further, measure
from coterie.runs.history import History, Row
from coterie.runs.reading import RunReader
from coterie.runs.records import RunFolder
from coterie.studies.run import changes, trust, tuned
from coterie.studies.run.best_round import BestRound
from coterie.studies.run.plan import Plan
from coterie.studies.run.result import Result
from coterie.studies.run.summary import summary_of
from coterie.studies.run.telling import Told, tell_asked, tell_dormant, telling, telling_why
from coterie.tasks.measured import measured
from coterie.words.suspicion import suspects

CLUSTERS = ("clusters", "k", "n_clusters")  # how methods call their number of clusters


@dataclass(frozen=True)
class Gathered:
    """What a run trains, for whom, and over which engine: all of it at hand, ready to begin."""

    method: Method
    population: Population
    fed: Engine
    engine: str = ""  # the engine and why it was chosen, in words
    notes: Mapping[str, Any] = field(default_factory=dict)  # of the engine, for checkpoints
    about: Mapping[str, Any] = field(default_factory=dict)  # told at the start: data, network, ...
    afterwards: Callable[[Result], object] = lambda result: None  # before the page is written
    attackers: Attackers = NOBODY  # of a simulation


def train_loop(
    them: Gathered,
    plan: Plan,
    say: Listener,
    folder: RunFolder | None = None,
    saved: State | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Result:
    """Train from the beginning, or on from `saved`, to the last round of the plan.

    `say` hears every event. With a folder, each round is recorded there, and checkpoints note
    `facts` of the world they were made in.
    """
    population, fed, names, kind = them.population, them.fed, them.fed.names, kind_of(them.method)
    fed.everybody = plan.everybody
    history, best = taken_up(plan, folder, saved)
    announce(them, plan, say, saved)
    began = clock = time.perf_counter()
    previous = changes.shown(saved, population).assign if saved else None
    told, clustering = Told(suspects=set(suspects(saved)) if saved else set()), measure.LastFit()
    until = saved.round if saved and best.over else plan.rounds
    state, states = saved, run(them.method, fed, until, saved)
    if saved:
        next(states)  # the state that was saved: it is measured already
    for state in telling_why(states, fed, say):
        asked, fed.ledger[:] = list(fed.ledger), []
        truth, seen = population.at(state.round).group, changes.shown(state, population)
        changes.tell_changes(population, state.round, say)
        rows = measure.traffic(seen, asked, names, kind)
        rows += measure.grouped(seen, previous, truth, clustering, kind)
        rows += measure.scheduled(state, them.method, plan.rounds)
        tell_dormant(kind, previous, seen, say, told)
        previous = seen.assign
        trained = time.perf_counter()
        rows = tests(them, plan, state, history, say, told) + rows
        history.rows += rows
        due = best.see(state, rows, fed) or plan.saves_at(state.round)
        if folder:
            folder.record(seen, rows, names, truth, kind)
            if due:
                folder.checkpoint(state, fed.memories(), facts or {}, best.round)
        trust.tell_clients(fed, asked, state, changes.waiting(state, population), say, told)
        now = time.perf_counter()
        spent = {"seconds": round(now - clock, 4), "evaluate_seconds": round(now - trained, 4)}
        at = {"event": "round", "round": state.round, "rounds": plan.rounds}
        say(at | spent | {"asked": measure.questions(asked)} | headline(history, state, plan))
        clock = now
        if best.over:
            break
    assert state is not None  # run yields at least where it starts
    state = best.take(state, fed, folder, say)
    seconds = time_of(began, folder if saved else None)
    summary = summary_of(them.method, population, plan, history, state, fed)
    summary |= trust.attacked(them.attackers, names)
    if folder:
        folder.summary(summary | {"seconds": seconds})
    path = folder.path if folder else None
    say({"event": "done", "seconds": seconds, "folder": str(path) if path else None})
    return Result(them.method, population, fed, state, history, summary, path)


def taken_up(
    plan: Plan, folder: RunFolder | None, saved: State | None
) -> tuple[History, BestRound]:
    """What the rounds behind have shown; what a crash left of checkpoints goes."""
    history = folder.history() if folder and saved else History()
    best = BestRound(plan.stop, history, saved)
    if folder and saved:
        folder.prune(saved.round, best.round)
    return history, best


def time_of(began: float, resumed: RunFolder | None) -> float:
    """The seconds since a run began; of one that was resumed, those of all its rounds."""
    now = time.perf_counter()
    return round(RunReader(resumed.path).seconds if resumed else now - began, 3)


def recording(folder: RunFolder | None, tell: Listener) -> Listener:
    """A listener that writes events into the run's folder, if there is one, and passes them on."""

    def hear(event: Event) -> None:
        if folder:
            folder.event(event)
        tell(event)

    return hear


def announce(them: Gathered, plan: Plan, say: Listener, saved: State | None) -> None:
    """Tell that a run begins or goes on; at its beginning, also what is peculiar about it."""
    say(
        {
            "event": "resume" if saved else "start",
            "round": saved.round if saved else 0,
            "rounds": plan.rounds,
            "clients": len(them.fed.names),
            "parameters": them.fed.layout.size,
            "method": repr(them.method),
            "kind": declared(them.method),
            "engine": them.engine,
            "cwd": str(Path.cwd()),  # where relative paths of the experiment count from
            **them.about,
        }
    )
    if saved is None:
        trust.tell_attack(them.attackers, them.fed.names, say)
        odd = (*crowded(them.method, len(them.fed.names)), *peculiar(them.population))
        for note in (*them.population.notes, *odd, *them.fed.notes):
            say({"event": "warning", "text": note})


def tests(
    them: Gathered, plan: Plan, state: State, history: History, say: Listener, told: Told
) -> list[Row]:
    """The rows of all tests that the plan has after this round."""
    rows: list[Row] = []
    if plan.tests_at(state.round):
        known = history if plan.absent else None
        rows = tested(them, state, known, say, told, plan.metrics)
    if plan.tuned and state.round >= plan.rounds:
        rows += tuned.tuned(them, state, plan.tuned)
    return rows


def tested(
    them: Gathered,
    state: State,
    before: History | None,
    say: Listener,
    told: Told,
    asked: Sequence[str],
) -> list[Row]:
    """The rows of a test of every client; a test is not traffic, so the ledger forgets it.

    `asked` are the metrics beside accuracy and loss.
    """
    fed, names = them.fed, them.fed.names
    with telling(fed, say):
        test = them.method.score
        test = test.validated() if them.population.validates else test
        scores = evaluate(them.method, state, fed, measured(test, asked))
    tell_asked(fed.ledger, names, say, told)
    fed.ledger.clear()
    if new := set(scores.untested) - told.untested:
        told.untested |= new
        who = [names[i] for i in sorted(new)]
        say({"event": "untested", "round": state.round, "clients": who})
    how = names, fed.sizes, kind_of(them.method), before
    found = [scores] if scores.validation is None else [scores.validation, scores]
    return [
        row
        for one in found
        for row in (
            *measure.tested(state, one, *how),
            *trust.apart(state, one, them.attackers.who),
            *further.tested(state, one, *how, asked),
        )
    ]


def crowded(method: Method, clients: int) -> list[str]:
    """What to say of a method that is told to make more clusters than there are clients.

    An experiment file that says how many clients there are is refused for it; how many owners the
    data have is known only now.
    """
    found = {key: getattr(method, key, 0) for key in CLUSTERS}
    return [
        f"{key} = {k} is more than there are clients ({clients}): models that nobody holds"
        for key, k in found.items()
        if isinstance(k, int) and k > clients
    ]


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


def headline(history: History, state: State, plan: Plan) -> dict[str, float]:
    """The numbers of one round that a person watches, with the metrics that were asked for."""
    shown = {name: name for name in ("clusters", "ari", "bytes_down", "bytes_up")}
    shown |= {"accuracy_mean": "accuracy", "accuracy_worst": "worst"}
    shown |= {"clients": "clients", "absent": "absent"}  # behind the mean, and not
    shown |= {best_by.full(name): short(name) for name in plan.metrics}
    found: dict[str, float] = {}
    for row in reversed(history.rows):
        if row.round != state.round:
            break
        if row.stage == VALIDATION:
            if not row.client and row.metric == "accuracy_mean":
                found["validation"] = row.value
            continue
        if not row.client and row.metric in shown:
            found.setdefault(shown[row.metric], row.value)  # "after" comes last and is found first
    return found
