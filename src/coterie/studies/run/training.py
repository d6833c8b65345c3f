"""The one road of every run, whether its clients are in this process or on other machines.

`coterie.fit`, `coterie run`, `resume`, `compare`, `newcomers` and `serve` all come through `train`:
open the folder, gather the clients, train, let newcomers join, write the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import nn

from coterie import engines
from coterie.attacks.attack import Attack
from coterie.attacks.attackers import attackers
from coterie.attacks.data import Poisoned
from coterie.attacks.replies import Hostile
from coterie.config import toml
from coterie.core import checks, rng, storage
from coterie.core.errors import CheckpointError, CoterieError
from coterie.core.events import Listener, silence
from coterie.core.layout import Layout
from coterie.core.types import Method
from coterie.core.version import __version__
from coterie.data.population import Population
from coterie.engines.choice import Choice, work
from coterie.methods.refusals import expect_possible
from coterie.methods.written import as_plain
from coterie.models import factory
from coterie.runs import checkpoint
from coterie.runs.files import text_of, toml_of
from coterie.runs.records import RunFolder
from coterie.studies.finished.opened import known_of
from coterie.studies.run import private
from coterie.studies.run.arguments import PlanOptions, attack_of, clients_of, method_of, plan_of
from coterie.studies.run.best_round import expect_validation
from coterie.studies.run.plan import Plan
from coterie.studies.run.result import Result
from coterie.studies.run.train_loop import Gathered, recording, train_loop
from coterie.tasks.measured import expect_metrics

Model = str | nn.Module | Callable[..., nn.Module]  # a name of the zoo, a module, or its factory
Gather = Callable[[Listener, checkpoint.Checkpoint | None], Gathered]
"""Brings the clients of a run together once its folder is open: what happens meanwhile is told to
the listener, and a run that goes on has the checkpoint it goes on from."""


def fit(
    method: Method | str,
    population: Population,
    model: Model,
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
    attack: Attack | None = None,
    on_event: Listener | None = None,
    page: bool = True,
    **plan: Unpack[PlanOptions],
) -> Result:
    """Train `method`, or the one of that name, for `rounds` rounds and measure every client.

    `model` is a name, a factory or a module; its initial weights follow from `seed`. With `out`,
    everything is recorded in that folder, and report.html in it shows what came out unless `page`
    is False; with `resume`, a run found there is continued to the same bits as if it had never
    stopped. Under an `attack`, some clients are hostile. Further keywords are the fields of `Plan`.
    """
    checks.whole(seed, "seed")
    method, population = method_of(method), clients_of(population)
    planned, attack = plan_of(rounds, plan), attack_of(attack)
    folder = None if out is None else checks.path(out, "out")
    if resume and folder is not None:
        expect_rounds(method, rounds, folder)
    expect_validation(planned.stop, population, planned.metrics)
    layout = build_layout(
        model, population.shape, population.classes, seed=seed, head=head, options=model_options
    )
    clients = simulation(
        method,
        population,
        layout,
        seed=seed,
        engine=engine,
        workers=workers,
        address=address,
        attack=attack,
    )
    told = {"method": as_plain(method), "plan": asdict(planned), "population": population.recipe}
    return train(
        clients,
        planned,
        describe(method, model, seed, rounds, attack),
        out=folder,
        resume=resume,
        tell=on_event or silence,
        page=page,
        python=told,
    )


def expect_rounds(method: Method, rounds: int, out: Path) -> None:
    """Refuse to go on to other rounds than planned, where the learning rate follows from them."""
    schedule = getattr(getattr(method, "solver", None), "schedule", None)
    file = out / "run.toml"
    if schedule is None or not schedule.planned or not file.exists():
        return
    before = toml_of(file).get("rounds", rounds)
    if before != rounds:
        raise CheckpointError(
            f"rounds differ from the run's start: {before} were planned, now {rounds}",
            code="K010",
            why="the learning rate follows from how many are planned",
            fix=f"give rounds={before}, or start a new run in another folder",
        )


def describe(
    method: Method, model: Model, seed: int, rounds: int, attack: Attack | None = None
) -> str:
    """The run.toml of a run that was started from Python, for people to read."""
    asked = {"method": repr(method), "model": str(model), "seed": seed, "rounds": rounds}
    asked |= {"attack": repr(attack)} if attack else {}
    return "# Started from Python; continue it with coterie.fit(..., resume=True).\n" + toml.write(
        {"started_from": "python", **asked}
    )


def train(
    gather: Gather,
    plan: Plan,
    settings: str,
    *,
    out: Path | None = None,
    resume: bool = False,
    tell: Listener = silence,
    page: bool = True,
    python: Mapping[str, Any] | None = None,
) -> Result:
    """Train from the first round, or with `resume` from the last whole one, to the end.

    With `out`, everything is recorded in that folder, whose run.toml is `settings`, and at the end
    there is a report.html in it unless `page` is False. `python` is what a run without an
    experiment file was given, for whoever opens it again.
    """
    expect_metrics(plan.metrics)
    folder, last = RunFolder(out, keep=plan.keep) if out else None, None
    amiss: list[str] = []
    with folder or nullcontext():
        if folder and resume and checkpoint.rounds(folder.path / "checkpoints"):
            checkpoint.expect_rounds_left(folder.path / "checkpoints", plan.rounds)
            last, amiss = folder.back()
        elif folder:
            folder.begin(settings)
        say = recording(folder, tell)
        for text in amiss:
            say({"event": "warning", "text": text})
        them = gather(say, last)
        with closing(them.fed):
            facts = facts_of(settings, them) if folder else {}
            if folder:
                layout = them.fed.layout
                known_of(them.population, layout, them.fed.seed, python).save(folder.path, layout)
            if folder and last:
                for warning in changes(facts, last.notes):
                    say({"event": "warning", "text": warning})
                file = folder.path / "run.toml"
                if text_of(file) != settings:  # more rounds, or a change that was allowed
                    storage.replace_file(file, settings.encode())
                them.fed.restore(last.memories)
            result = train_loop(them, plan, say, folder, last.state if last else None, facts)
            them.afterwards(result)
            if folder and page:
                written = write_page(result, folder.path / "report.html", say)
                return replace(result, page=written)
            return result


def simulation(
    method: Method,
    population: Population,
    layout: Layout,
    *,
    seed: int = 0,
    engine: str = "auto",
    workers: int = 0,
    address: str | None = None,
    about: Mapping[str, Any] | None = None,
    afterwards: Callable[[Result], object] = lambda result: None,
    attack: Attack | None = None,
) -> Gather:
    """Clients whose data are at hand, reached by one of the engines of this machine or cluster.

    What they are `about` is told when the run begins. Under an `attack`, some are hostile.
    """
    expect_possible(method)
    hostile = attackers(attack or Attack(), population, seed)
    if hostile.attack.on_data:
        population = Poisoned(population, hostile, seed)
    through = partial(Hostile, them=hostile) if hostile.attack.on_replies else None
    private.expect_possible(method, layout)
    wanted = engines.settle(engine, workers, population, layout, method)

    def gather(say: Listener, last: checkpoint.Checkpoint | None) -> Gathered:
        who = wanted
        if last and engine == "auto":  # as it was started, whatever this machine would suggest
            who = Choice(last.notes["engine"], last.notes["workers"], "as the run was started")
        if last and who.name == "ray":  # before there was another, its actors were stacked
            who = replace(who, inner=last.notes.get("inner", "stacked"))
        fed = engines.build(
            *(who.name, population, layout, seed, who.workers, address, who.inner),
            tell=say,
            through=through,
        )
        fed.protected = private.noise_of(method).on
        return Gathered(
            method,
            population,
            fed,
            engine=str(who),
            notes={
                "engine": who.name,
                "workers": who.workers,
                **({"inner": who.inner} if who.inner else {}),
            },
            about={**outlook(method, population, layout, who), **(about or {})},
            afterwards=afterwards,
            attackers=hostile,
        )

    return gather


def outlook(method: Method, population: Population, layout: Layout, who: Choice) -> dict[str, Any]:
    """What a run will be like: its samples, and roughly the bytes and seconds of a round.

    The bytes go each way, if whole models travel.
    """
    engine = who.inner or who.name
    cohort, seconds = work(layout, method, population.sizes, population.shape, engine)
    return {
        "samples": int(population.sizes.sum()),
        "shape": list(population.shape),
        "classes": population.classes,
        "round_bytes": cohort * layout.initial.nbytes,
        "round_seconds": round(seconds / max(1, who.workers), 3),
    }


def build_layout(
    model: Model,
    shape: Sequence[int],
    classes: int,
    *,
    seed: int = 0,
    head: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Layout:
    """The network for samples of this shape as a row of parameters.

    Its initial weights follow from `seed`, the seed of the whole run; `head` names the layer that
    is the head, and `options` go to the network's builder.

    >>> build_layout("mclr", (1, 8, 8), 10).size
    650
    """
    given = dict(options or {})
    net = factory.build(
        model, shape=shape, classes=classes, seed=rng.address(seed, "model"), **given
    )
    built = {"network": factory.importable(model), "options": given, "head": head}
    return Layout(net, head=head, built=built)


def facts_of(settings: str, them: Gathered) -> dict[str, Any]:
    """What a checkpoint notes of the world it was made in."""
    return {
        "settings": settings,
        "coterie": __version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        **them.notes,
        "population": them.population.key,
    }


def changes(now: Mapping[str, Any], then: Mapping[str, Any]) -> list[str]:
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
        for key in now
        if key not in ("settings", "population") and now[key] != then[key]
    ]


def write_page(result: Result, file: Path, tell: Listener = silence) -> Path | None:
    """The page of a run that just ended; what goes wrong here is told and spoils no run."""
    from coterie import report  # plotly takes its time

    try:
        return report.write_result(result, file)
    except Exception as error:  # hours of training are worth more than their page
        what = str(error) if isinstance(error, CoterieError) else f"{type(error).__name__}: {error}"
        tell({"event": "warning", "text": f"no report: {what}"})
        return None
