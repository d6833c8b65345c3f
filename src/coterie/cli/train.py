"""Commands that train: run, resume, and the demo of two methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import options, running, say
from coterie.cli.options import AllowCode, JsonEvents, Live, NoReport, Out, Quiet, Run, Settings
from coterie.cli.progress import behind, clusters, some, warnings, watching
from coterie.cli.report import watched
from coterie.core import storage
from coterie.core.shell import command
from coterie.core.units import count
from coterie.runs.files import toml_of

if TYPE_CHECKING:
    from coterie.studies.run.result import Result

DEMO = {
    "data.source": "digits",
    "partition.kind": "rotation",
    "partition.clients": 20,
    "model.name": "cnn-s",
    "train.local_epochs": 2,
    "train.batch_size": 16,
}


def run(
    settings: Settings = None,
    data: Annotated[str | None, typer.Option(help="data.source: a name, file or folder.")] = None,
    method: options.Method = None,
    clients: options.Clients = None,
    partition: options.Kind = None,
    model: options.Model = None,
    rounds: Annotated[int | None, typer.Option(help="train.rounds")] = None,
    seed: options.Seed = None,
    engine: Annotated[str | None, typer.Option(help="engine.name")] = None,
    out: Out = None,
    track: Annotated[
        list[str] | None, typer.Option(help="output.trackers: tensorboard, mlflow, wandb.")
    ] = None,
    allow_code: AllowCode = False,
    live: Live = False,
    no_report: NoReport = False,
    quiet: Quiet = False,
    json: JsonEvents = False,
) -> None:
    """Train an experiment.

    It is given as a file, as flags and settings, or both; flags and settings stand above the file.
    """
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
    config = options.experiment(settings, flags, allow_code=allow_code)
    if not json:
        for text in config.notes:
            say.label("note", text)
        if "method" not in config.origins and not quiet:
            say.label("method", unnamed(config.method, config.data.source))
    from coterie.studies.run.experiment import fresh

    folder = out or fresh(config)
    with (
        watched(folder, live),
        watching(config.method, quiet=quiet, json=json) as listen,
    ):
        result = running.execute(config, folder, listen, page=not no_report)
    code = running.own_code(config)
    conclude(config.method, result, json, lambda n: running.again(folder, code, "--rounds", n))


def unnamed(method: str, source: str) -> str:
    """What is taken where no method is named, how it stands in the atlas, and how to know more."""
    from coterie.studies.atlas.advice import Advice, said_of

    look = command("inspect", source)
    return f"{method}, as none is named; {said_of(method, Advice.load())}; {look} sees which suit"


def resume(
    folder: Run,
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings to change.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Go on to this many rounds.")] = None,
    allow_change: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Let this setting differ.")
    ] = None,
    allow_code: AllowCode = False,
    live: Live = False,
    no_report: NoReport = False,
    quiet: Quiet = False,
    json: JsonEvents = False,
) -> None:
    """Continue a run exactly where it stopped.

    The result has the same bits as if the run had never been interrupted.
    """
    given = options.assigned(settings, {"train.rounds": rounds})
    method = str(toml_of(folder / "run.toml").get("method", folder.name))
    with watched(folder, live), watching(method, quiet=quiet, json=json) as listen:
        result = running.proceed(
            folder,
            listen,
            given,
            allow_change or (),
            allow_code=allow_code,
            page=not no_report,
        )
    conclude(method, result, json, lambda n: running.again(folder, allow_code, "--rounds", n))


def conclude(name: str, result: Result, json: bool, again: Callable[[int], str]) -> None:
    """What came out of a run, where it lies, and how to train on: by `again` to so many rounds."""
    if json:
        say.line(result_event(name, result))
        return
    say.result(runs_table({name: result}))
    if text := chosen(result.summary):
        say.label("taken", text)
    for label, text in doubts(result.summary):
        say.label(label, text)
    say.label("records", f"{result.folder}  (metrics.csv, clusters.csv, summary.json)")
    if result.page:
        say.page(result.page, result.folder)
    if goes_on(result):
        say.label("next", f"{again(2 * int(result.summary['rounds']))}    train on")


def goes_on(result: Result) -> bool:
    """Whether more rounds make sense.

    Not of one that has stopped, nor where a rate has run out, nor with noise for so many rounds.
    """
    taken, solver = result.summary.get("taken"), getattr(result.method, "solver", None)
    stopped = taken and taken["of"] != int(result.summary["rounds"])
    schedule = getattr(solver, "schedule", None)
    noise = getattr(getattr(solver, "privacy", None), "on", False)
    return not stopped and not noise and not (schedule and schedule.planned)


def result_event(name: str, result: Result) -> dict[str, Any]:
    """What came out of a run, as the last JSON object of its command."""
    return {
        "event": "result",
        "name": name,
        "folder": str(result.folder),
        "seconds": seconds_of(result),
        "notes": list(result.population.notes),
        "summary": dict(result.summary),
    }


def seconds_of(result: Result) -> float:
    """How long a run in a folder took, with what was trained before it was resumed."""
    from coterie.runs.reading import RunReader

    assert result.folder is not None
    return RunReader(result.folder).seconds


def runs_table(runs: Mapping[str, Result]) -> str:
    """One row per run: accuracy, worst client, clusters, bytes, time."""
    head = ("method", "accuracy", "worst client", "models", "sent up", "sent down", "time")
    rows = []
    for name, result in runs.items():
        s = result.summary
        at = s[s["stage"]]
        row = (
            name,
            say.percent(at["accuracy_mean"]) + behind(at),
            say.percent(at["accuracy_worst"]),
            models(s),
            say.size(s["bytes_up"]),
            say.size(s["bytes_down"]),
            say.seconds(seconds_of(result)),
        )
        rows.append(row)
    return say.table(head, rows, numbers=True)


def doubts(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Who was hostile or is suspicious, and what could not be merged, each behind a word."""
    if attack := summary.get("attack"):
        ends = summary[summary["stage"]]
        honest, hostile = (ends.get(f"accuracy_{who}") for who in ("honest", "attackers"))
        told = f"honest clients {say.percent(honest)}, hostile ones {say.percent(hostile)}"
        yield "attack", f"{attack['kind']} by {count(len(attack['clients']), 'client')}: {told}"
    if suspects := summary.get("suspects"):
        yield (
            "suspect",
            f"{count(len(suspects), 'client')}: {some([s['client'] for s in suspects])}",
        )
    if times := summary.get("unmerged"):
        yield "merge", f"{count(times, 'time')} a cluster of too few answers kept its model"


def chosen(summary: Mapping[str, Any]) -> str:
    """Which round the numbers are of, where it was chosen.

    >>> chosen({"taken": {"round": 7, "of": 9, "metric": "loss", "value": 0.5}, "rounds": 20})
    'round 7 of 9, the best on validation data (loss 0.5000); stopped before round 20'
    """
    if not (taken := summary.get("taken")):
        return ""
    best = f"the best on validation data ({taken['metric']} {taken['value']:.4f})"
    early = f"; stopped before round {summary['rounds']}" * (taken["of"] < summary["rounds"])
    return f"round {taken['round']} of {taken['of']}, {best}{early}"


def models(summary: Mapping[str, Any]) -> str:
    """Whose models a run made, and of clusters how many.

    >>> models({"kind": "personal"}), models({"kind": "clustered", "clusters": {"clusters": 1.0}})
    ('own', '1 cluster')
    """
    if summary["kind"] != "clustered":
        return {"shared": "1 for all", "personal": "own"}[summary["kind"]]
    return " ".join(clusters(summary["clusters"])) or "1 cluster"


def demo(
    method: Annotated[
        str | None, typer.Option(help="The method beside fedavg; see coterie methods.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of each method.")] = 20,
    out: Annotated[Path, typer.Option(help="The folder of the two runs.")] = Path("runs/demo"),
    no_report: NoReport = False,
    quiet: Quiet = False,
    json: JsonEvents = False,
) -> None:
    """Train two methods, offline, in a minute.

    20 clients in 4 hidden groups hold handwritten digits; each group sees them at another angle.
    """
    from coterie.core.version import __version__

    names = tuple(dict.fromkeys(("fedavg", method or "fedclust")))
    asked = {name: {"method": name, "train.rounds": rounds, **DEMO} for name in names}
    configs = {name: options.experiment(None, flags) for name, flags in asked.items()}
    if not (quiet or json):
        say.note(
            f"coterie {__version__} · digits (1,797 images, in scikit-learn) · "
            f"20 clients in 4 hidden groups (rotated 0°/90°/180°/270°) · seed 0"
        )
    runs = {}
    for name, config in configs.items():
        if (out / name / "run.toml").exists():  # of an old demo; anything else is left alone
            storage.remove_folder(out / name)
        with watching(name, quiet=quiet, json=json) as listen:
            runs[name] = running.execute(config, out / name, listen, page=False)
    from coterie.studies.run.training import write_page

    # The page of both runs is that of the second, which finds the first beside it.
    second = runs[names[-1]]
    page = None if no_report else write_page(second, out / "report.html", warnings)
    if json:
        for name, result in runs.items():
            say.line(result_event(name, result))
        return
    say.result(runs_table(runs))
    if len(runs) == 2:
        say.result(compared(runs))
    say.label("records", f"{out}/*/  run.toml, metrics.csv, clusters.csv, summary.json")
    if page:
        say.page(page, out)
    say.label(
        "next", "coterie init my.toml       write a commented experiment file for your own data"
    )


def compared(runs: Mapping[str, Result]) -> str:
    """For how many clients one of two runs is better than the other, and whether by chance."""
    from coterie.runs.statistics import wilcoxon

    (first, a), (second, b) = ((n, result.accuracy.values) for n, result in runs.items())
    both = [client for client in a if client in b]
    return wilcoxon([b[c] for c in both], [a[c] for c in both], second, first).sentence
