"""The command that looks at a federation before it is clustered."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import say
from coterie.cli.options import Clients, Kind, Model, Plot, Seed

if TYPE_CHECKING:
    from torch import Tensor

    from coterie.config import Config
    from coterie.studies.inspection import Inspection
    from coterie.words.grouping import Curve


class Distance(StrEnum):
    """How two clients' final layers are compared."""

    cosine = "cosine"
    l2 = "l2"


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
    partition: Kind = None,
    clients: Clients = None,
    model: Model = None,
    seed: Seed = None,
    rounds: Annotated[int, typer.Option(min=0, help="Of FedAvg before the trajectories.")] = 1,
    distance: Annotated[
        Distance, typer.Option(help="cosine: of the updates; l2: FedClust's Eq. 3.")
    ] = Distance.cosine,
    linkage: Annotated[Linkage, typer.Option(help="Of the tree of clients.")] = Linkage.average,
    plot: Plot = None,
    json: Annotated[bool, typer.Option("--json", help="All numbers as one JSON object.")] = False,
) -> None:
    """See how heterogeneous clients are, and choose a threshold.

    Every client trains once from the same model. Nothing is kept.
    """
    from coterie.cli.train import data_at_hand

    flags = {
        "partition.clients": clients,
        "partition.kind": partition,
        "model.name": model,
        "seed": seed,
    }
    config = experiment_of(source, settings or [], flags)
    data_at_hand(config)
    seen = inspected(config, rounds, distance, linkage)
    if json:
        say.line(seen.facts())
    else:
        say.result(report(seen))
    if plot:
        plot.parent.mkdir(parents=True, exist_ok=True)
        seen.plot().write_html(plot, include_plotlyjs=True)
        if not json:
            say.label("plot", str(plot))
    if not json:
        say.label("next", advice(seen, source, flags))


def inspected(config: Config, rounds: int, distance: Distance, linkage: Linkage) -> Inspection:
    """What is seen of the clients of an experiment."""
    import torch

    from coterie.methods.fedclust import FedClust
    from coterie.studies import experiment
    from coterie.studies.inspection import inspect as look
    from coterie.tasks.solver import Solver

    torch.set_num_threads(config.engine.threads)
    people = experiment.population(config)
    method = experiment.method(config)
    return look(
        people,
        config.model.name,
        rounds=rounds,
        seed=config.seed,
        solver=experiment.solver(config.train, Solver()),
        distance="l2" if distance is Distance.l2 else "update_cosine",
        linkage=linkage.value,
        head=config.model.head,
        model_options=experiment.model_options(config),
        method=method if isinstance(method, FedClust) else None,
    )


def experiment_of(source: str, settings: list[str], flags: dict[str, Any]) -> Config:
    """The experiment that a source of data, a file or a run's folder stands for."""
    from coterie.config import load
    from coterie.config.source import assignment

    given = [assignment(s) for s in settings]
    given += [(key, value) for key, value in flags.items() if value is not None]
    if (Path(source) / "run.toml").exists():
        from coterie.studies.experiment import config_of

        return config_of(Path(source), given)
    if source.endswith(".toml"):
        return load(Path(source), given)
    return load(None, [("data.source", source), *given])


def report(seen: Inspection) -> str:
    """The numbers of both views, the curve, and what follows."""
    mark = chosen(seen)
    rows = [
        (f"{t:.4g}", k, f"{s:.3f}", "automatic" * (t == mark))
        for t, k, s in zip(*(column.tolist() for column in columns(seen.curve)), strict=True)
    ]
    table = say.table(("threshold", "clusters", "silhouette", ""), rows, numbers=True)
    silent = f"no finite answer from {', '.join(seen.missing)}\n" if seen.missing else ""
    return (
        f"{silent}coefficient of variation: pull {seen.pull:.3f}, push {seen.push:.3f}\n"
        f"mean Hopkins: {seen.hopkins:.3f}  (rounds of FedAvg before: {seen.rounds})\n\n"
        f"{table}\n\n{seen.verdict}"
    )


def columns(curve: Curve) -> tuple[Tensor, ...]:
    """Threshold, clusters and silhouette."""
    return curve.threshold, curve.k, curve.silhouette


def chosen(seen: Inspection) -> float:
    """The threshold of the curve from which on the automatic cut is what one gets."""
    below = [t for t in seen.curve.threshold.tolist() if t <= seen.cut.threshold]
    return float(below[-1]) if below else 0.0


def advice(seen: Inspection, source: str, flags: dict[str, Any]) -> str:
    """What to run next."""
    if (Path(source) / "run.toml").exists() or source.endswith(".toml"):
        file = f"{source}/run.toml" if Path(source).is_dir() else source
        start = f"coterie run {file}"
    else:
        start = f"coterie run --data {source}"
    start += "".join(f" {key}={value}" for key, value in flags.items() if value is not None)
    if seen.measure == "l2" and seen.cut.k > 1:
        return f"{start} --method fedclust fedclust.threshold={seen.cut.threshold:.4g}"
    return f"{start} --method {'fedclust' if seen.cut.k > 1 or seen.clustered else 'fedavg'}"
