"""Commands that train: run, resume."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import running, say
from coterie.cli.live import watched
from coterie.cli.progress import clusters, watching
from coterie.cli.running import Done
from coterie.core.errors import ConfigError

if TYPE_CHECKING:
    from coterie.config import Config

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]
NoReport = Annotated[bool, typer.Option("--no-report", help="Write no report.html.")]
Live = Annotated[bool, typer.Option("--live", help="Watch the run in the browser.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per line on stdout.")]


def run(
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE] [KEY=VALUE]...", help="An experiment file, and settings."),
    ] = None,
    data: Annotated[str | None, typer.Option(help="data.source: a name, file or folder.")] = None,
    method: Annotated[str | None, typer.Option(help="method: see coterie methods.")] = None,
    clients: Annotated[int | None, typer.Option(help="partition.clients")] = None,
    partition: Annotated[
        str | None, typer.Option(help="partition.kind, as dirichlet:0.3 or rotation+quantity.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="model.name: see coterie models.")] = None,
    rounds: Annotated[int | None, typer.Option(help="train.rounds")] = None,
    seed: Annotated[int | None, typer.Option(help="seed")] = None,
    engine: Annotated[str | None, typer.Option(help="engine.name")] = None,
    out: Annotated[Path | None, typer.Option(help="The folder of the run.")] = None,
    track: Annotated[
        list[str] | None, typer.Option(help="output.trackers: tensorboard, mlflow, wandb.")
    ] = None,
    live: Live = False,
    no_report: NoReport = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train an experiment.

    It is given as a file, as flags and settings, or both; flags and settings stand above the file.
    """
    from coterie.config import load

    flags = {
        "data.source": data,
        "method": method,
        "partition.clients": clients,
        "partition.kind": partition,
        "model.name": model,
        "train.rounds": rounds,
        "seed": seed,
        "engine.name": engine,
        "output.trackers": track or None,
    }
    file, given = sort(settings or [])
    given += [(key, value) for key, value in flags.items() if value is not None]
    config = load(file, given)
    data_at_hand(config)
    if not json:
        for text in config.notes:
            say.label("note", text)
    folder = out or running.fresh(config)
    with (
        watched(folder, live),
        watching(config.method, quiet=quiet, json=json) as listen,
    ):
        done = running.execute(config, folder, listen, page=not no_report)
    conclude(config.method, done, json)


def resume(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings to change.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Go on to this many rounds.")] = None,
    allow_change: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Let this setting differ.")
    ] = None,
    live: Live = False,
    no_report: NoReport = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Continue a run exactly where it stopped.

    The result has the same bits as if the run had never been interrupted.
    """
    from coterie.config.source import assignment

    given = [assignment(text) for text in settings or []]
    if rounds is not None:
        given.append(("train.rounds", rounds))
    with watched(folder, live), watching(folder.name, quiet=quiet, json=json) as listen:
        done = running.proceed(folder, listen, given, allow_change or (), page=not no_report)
    conclude(folder.name, done, json)


def sort(settings: list[str]) -> tuple[Path | None, list[tuple[str, Any]]]:
    """The experiment file among the arguments, and the settings."""
    from coterie.config.source import assignment

    files = [s for s in settings if "=" not in s or Path(s).is_file()]
    if len(files) > 1:
        raise ConfigError(
            f"more than one experiment file: {', '.join(files)}",
            code="C001",
            fix="name one file; settings are written key=value",
        )
    given = [assignment(s) for s in settings if s not in files]
    return (Path(files[0]) if files else None), given


def data_at_hand(config: Config) -> None:
    """Refuse a named data set that is not on this machine, before anything heavy is imported."""
    from coterie.data import named

    name = named.canonical(config.data.source)
    if name and not named.NAMED[name].embedded:
        named.require(name)


def conclude(
    name: str, done: Done, json: bool, again: str = "coterie resume {folder} --rounds {rounds}"
) -> None:
    """What came out of a run, where it lies, and how to train on with the command `again`."""
    if json:
        say.line(result_event(name, done))
        return
    result = done.result
    say.result(runs_table({name: done}))
    say.label("records", f"{result.folder}  (metrics.csv, clusters.csv, summary.json)")
    if result.page:
        say.label("report", f"{result.page}    open it: coterie open {result.folder}")
    rounds = 2 * int(result.summary["rounds"])
    say.label("next", f"{again.format(folder=result.folder, rounds=rounds)}    train on")


def result_event(name: str, done: Done) -> dict[str, Any]:
    """What came out of a run, as the last JSON object of its command."""
    return {
        "event": "result",
        "name": name,
        "folder": str(done.result.folder),
        "seconds": done.seconds,
        "notes": list(done.result.population.notes),
        "summary": dict(done.result.summary),
    }


def runs_table(runs: Mapping[str, Done]) -> str:
    """One row per run: accuracy, worst client, clusters, bytes, time."""
    head = ("method", "accuracy", "worst client", "clusters", "sent up", "sent down", "time")
    rows = []
    for name, done in runs.items():
        s = done.result.summary
        at = s[s["stage"]]
        found = {k: s["clusters"][k] for k in ("clusters", "ari") if k in s["clusters"]}
        rows.append(
            (
                name,
                say.percent(at["accuracy_mean"]),
                say.percent(at["accuracy_worst"]),
                " ".join(clusters(found)).replace(" clusters", "") or "1",
                say.size(s["bytes_up"]),
                say.size(s["bytes_down"]),
                say.seconds(done.seconds),
            )
        )
    return say.table(head, rows, numbers=True)
