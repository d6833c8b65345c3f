"""The command that looks at clients before a method is chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import options, say
from coterie.cli.options import AllowCode, Plot
from coterie.core.shell import command
from coterie.core.units import count

if TYPE_CHECKING:
    from coterie.config import Config
    from coterie.studies.atlas.advice import Lesson
    from coterie.studies.insight.inspection import Inspection

NAMED = 12  # clients of a cluster that are told by name
Distance = StrEnum("Distance", ["cosine", "l2"])  # how two clients' final layers are compared


class Linkage(StrEnum):
    """How far apart two groups are: by their mean, nearest or farthest pair."""

    average = "average"
    single = "single"
    complete = "complete"


def inspect(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE|FILE|RUN", help="Data, an experiment file, or the folder of a run."
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Settings, as train.lr=0.1."),
    ] = None,
    partition: options.Kind = None,
    clients: options.Clients = None,
    model: options.Model = None,
    seed: options.Seed = None,
    rounds: Annotated[int, typer.Option(min=0, help="Of FedAvg before the trajectories.")] = 1,
    distance: Annotated[
        Distance | None,
        typer.Option(help="cosine: of the updates; l2: FedClust's Eq. 3. Else as a file says."),
    ] = None,
    linkage: Annotated[Linkage, typer.Option(help="Of the tree of clients.")] = Linkage.average,
    allow_code: AllowCode = False,
    plot: Plot = None,
    json: Annotated[bool, typer.Option("--json", help="All numbers as one JSON object.")] = False,
) -> None:
    """See how heterogeneous clients are, and choose a threshold.

    Every client trains once from the same model. Nothing is kept.
    """
    source, settings = options.source_among(source, settings)
    flags = {
        "partition.clients": clients,
        "partition.kind": partition,
        "model.name": model,
        "seed": seed,
    }
    config = experiment_of(source, options.assigned(settings, flags), allow_code)
    options.data_at_hand(config)
    seen = inspected(config, rounds, distance, linkage)
    asked = of_file(seen, config, linkage)
    if json:
        say.line(seen.facts() | ({"asked": asked} if asked else {}))
    else:
        say.result(report(seen))
        if asked:
            say.result(f"{asked['said']} gives {count(asked['clusters'], 'cluster')}")
    if plot:
        from coterie.report.script import write_figure

        write_figure(seen.plot(), plot)
        if not json:
            say.label("plot", str(plot))
    if not json:
        say.label("next", advice(seen, source, settings, flags))


def of_file(seen: Inspection, config: Config, linkage: Linkage) -> dict[str, Any] | None:
    """What the threshold, or the number of clusters, of a file's own FedClust gives here."""
    from coterie.words.grouping import agglomerate

    own = config.hyper if config.method == "fedclust" else {}
    threshold, clusters = own.get("threshold"), own.get("clusters") or 0
    if threshold is None and not clusters:
        return None
    labels = agglomerate(seen.distance, threshold, clusters, linkage.value)
    said = f"fedclust.clusters = {clusters}" if clusters else f"fedclust.threshold = {threshold:g}"
    return {"said": said, "clusters": int(labels.max()) + 1, "labels": labels.tolist()}


def inspected(
    config: Config, rounds: int, distance: Distance | None, linkage: Linkage
) -> Inspection:
    """What is seen of the clients of an experiment, by the distance that its threshold is of."""
    import torch

    from coterie.methods.fedclust import FedClust
    from coterie.studies.insight.inspection import inspect as look
    from coterie.studies.run import experiment
    from coterie.tasks.solver import Solver

    torch.set_num_threads(config.engine.threads)
    method = experiment.method(config)
    mine = method if isinstance(method, FedClust) else FedClust()
    given = mine.distance == "l2" or (mine.distance == "auto" and mine.threshold is not None)
    l2 = distance is Distance.l2 or (distance is None and given)
    return look(
        experiment.population(config),
        config.model.name,
        rounds=rounds,
        seed=config.seed,
        solver=experiment.solver(config.train, Solver()),
        distance="l2" if l2 else "update_cosine",
        linkage=linkage.value,
        head=config.model.head,
        model_options=experiment.model_options(config),
        method=method if isinstance(method, FedClust) else None,
    )


def experiment_of(source: str, given: list[tuple[str, Any]], allow_code: bool) -> Config:
    """The experiment that a source of data, a file or a run's folder stands for."""
    from coterie.config import load

    if (Path(source) / "run.toml").exists():
        from coterie.studies.run.experiment import config_of

        return config_of(Path(source), given, allow_code=allow_code)
    if source.endswith(".toml"):
        return load(Path(source), given, allow_code=allow_code)
    return load(None, [("data.source", source), *given])


def report(seen: Inspection) -> str:
    """The numbers of both views, the curve, and what follows."""
    mark = chosen(seen)
    columns = (c.tolist() for c in (seen.curve.threshold, seen.curve.k, seen.curve.silhouette))
    rows = [
        (f"{t:.4g}", k, f"{s:.3f}", "automatic" * (t == mark))
        for t, k, s in zip(*columns, strict=True)
    ]
    table = say.table(("threshold", "clusters", "silhouette", ""), rows, numbers=True)
    silent = f"no finite answer from {', '.join(seen.missing)}\n" if seen.missing else ""
    return (
        f"{silent}coefficient of variation: pull {seen.pull:.3f}, push {seen.push:.3f}\n"
        f"mean Hopkins: {seen.hopkins:.3f}  (rounds of FedAvg before: {seen.rounds})\n\n"
        f"{table}\n\n{seen.verdict}{together(seen)}\n{seen.checked}\n{taught(seen)}"
    )


def taught(seen: Inspection) -> str:
    """What the atlas says of clients like these."""
    if seen.reading is None:
        return "atlas: no results come with this version, so that it advises nothing"
    said = f"atlas: {seen.reading.text}"
    if seen.lesson is None:
        return f"{said}\n       it has no results of methods there yet"
    tests = f"{count(seen.lesson.runs, 'run')} in {count(seen.lesson.places, 'place')}"
    return f"{said}\n       {seen.lesson.text} ({tests})"


def together(seen: Inspection) -> str:
    """Who the automatic cut puts together, by name; of many clients, the first of each cluster."""
    labels = seen.cut.labels.tolist()
    told = ""
    for cluster in range(seen.cut.k if seen.clustered else 0):
        them = [n for n, label in zip(seen.names, labels, strict=True) if label == cluster]
        told += f"\n  {cluster}: {', '.join(them[:NAMED])}" + ", ..." * (len(them) > NAMED)
    return told


def chosen(seen: Inspection) -> float:
    """The threshold of the curve from which on the automatic cut is what one gets."""
    below = [t for t in seen.curve.threshold.tolist() if t <= seen.cut.threshold]
    return float(below[-1]) if below else 0.0


def suggested(lesson: Lesson) -> str:
    """The method to take: FedAvg where nothing is clearly better, or else the best."""
    from coterie.config.grid import split

    return "fedavg" if "fedavg" in lesson.level else split(lesson.best)[0]


def advice(seen: Inspection, source: str, settings: Sequence[str], flags: Mapping[str, Any]) -> str:
    """What to run next, with the clients that were seen."""
    if (Path(source) / "run.toml").exists() or source.endswith(".toml"):
        file = f"{source}/run.toml" if Path(source).is_dir() else source
        words = ["run", file]
    else:
        words = ["run", "--data", source]
    words += [*settings, *(f"{key}={value}" for key, value in flags.items() if value is not None)]
    if seen.lesson is not None and seen.reading is not None and seen.reading.sure:
        words += ["--method", suggested(seen.lesson)]
    elif seen.measure == "l2" and seen.clustered:
        words += ["--method", "fedclust", f"fedclust.threshold={seen.cut.threshold:.4g}"]
    else:
        words += ["--method", "fedclust" if seen.clustered else "fedavg"]
    return command(*words)
