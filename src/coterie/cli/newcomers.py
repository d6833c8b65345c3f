"""Commands about newcomers: newcomers holds clients out and lets them join, place finds a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import options, running, say
from coterie.cli.options import AllowCode, JsonEvents, Out, Quiet, Run, Settings
from coterie.cli.progress import watching
from coterie.core.errors import ConfigError, DataError
from coterie.core.units import count

if TYPE_CHECKING:
    from coterie.data.dataset import Data
    from coterie.runs.newcomers import Joined
    from coterie.studies.finished.placement import Placement
    from coterie.studies.run.result import Result


def nobody_held_out() -> ConfigError:
    """The error about newcomers of whom there are none."""
    return ConfigError(
        "newcomers.share = 0 holds nobody out, so nobody could join",
        code="C012",
        fix="a share of the clients, as 0.2; `coterie run` trains without newcomers",
    )


def newcomers(
    settings: Settings = None,
    method: options.Method = None,
    share: Annotated[
        float | None, typer.Option(help="newcomers.share: of the clients; 0.2 if not given.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="newcomers.epochs: of adaptation.")] = None,
    shots: Annotated[
        str | None, typer.Option(help="newcomers.shots: also with so few of a class, as 1,5.")
    ] = None,
    out: Out = None,
    allow_code: AllowCode = False,
    quiet: Quiet = False,
    json: JsonEvents = False,
) -> None:
    """Hold clients out, train, and let them join.

    They are seen neither in training nor in clustering. The same command with the same --out goes
    on after a stop.
    """
    flags = {
        "method": method,
        "newcomers.share": share,
        "newcomers.epochs": epochs,
        "newcomers.shots": None if shots is None else several(shots),
    }
    config = options.experiment(settings, flags, allow_code=allow_code)
    if not config.newcomers.share:
        if share is not None or any(s.startswith("newcomers.share") for s in settings or ()):
            raise nobody_held_out()
        flags["newcomers.share"] = 0.2
        config = options.experiment(settings, flags, allow_code=allow_code)
    from coterie.runs import newcomers as joining
    from coterie.runs.files import text_of
    from coterie.studies.run import experiment, started

    with watching(config.method, quiet=quiet, json=json) as listen:
        if out and (out / "run.toml").exists():
            if experiment.from_python(out):
                raise experiment.python_alone(out)
            started.refuse_changes(text_of(out / "run.toml"), config, ())
            # Its code is that of `config`, which was allowed when that was read.
            result = running.proceed(out, listen, allow_code=running.own_code(config))
        else:
            result = running.execute(config, out, listen)
    folder = result.folder
    assert folder is not None
    found = joining.read(folder)
    assert found is not None
    if json:
        for row in found.rows:
            say.line(row._asdict())
        return
    say.result(newcomers_table(found))
    say.result(sentence(found, len(result.population)))
    say.label("records", f"{folder}  (newcomers.csv beside those of the run)")
    say.label("next", f"{folder / 'newcomers.csv'}    each newcomer after each epoch")


def several(text: str) -> list[int]:
    """Numbers of samples.

    >>> several("1,5")
    [1, 5]
    """
    if not all(part.strip().isdigit() for part in text.split(",")):
        raise ConfigError(f"--shots is {text!r}", code="C001", fix="write numbers: --shots 1,5")
    return [int(part) for part in text.split(",")]


def newcomers_table(found: Joined) -> str:
    """A row for each number of samples: accuracy epoch by epoch, assignment, bytes."""
    head = ["samples", *(count(e, "epoch") for e in range(found.epochs + 1))]
    rows = []
    for shots in found.shots:
        up, down = found.cost(shots)
        cells = (found.accuracy(e, shots) for e in range(found.epochs + 1))
        rows.append(
            (
                "all" if shots is None else f"{shots} a class",
                *("" if c is None else say.percent(c) for c in cells),
                say.percent(found.assigned(shots)),
                say.size(up),
                say.size(down),
            )
        )
    return say.table([*head, "right cluster", "sent up", "sent down"], rows, numbers=True)


def sentence(found: Joined, trained: int) -> str:
    """Who joined whom."""
    many = len(found.newcomers)
    who = f"{count(many, 'newcomer')} join{'s' * (many == 1)}"
    return (
        f"{who} {count(trained, 'client')}: mean accuracy of their own test sets; what was sent "
        "placed one newcomer, adaptation sends nothing"
    )


def place(
    folder: Run,
    data: Annotated[str, typer.Option(help="The newcomers' data: a name, file or folder.")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Options of the reader; else the run's."),
    ] = None,
    name: Annotated[str, typer.Option(help="What the newcomer is called.")] = "newcomer",
    epochs: Annotated[int, typer.Option(min=0, help="Local epochs of adaptation.")] = 5,
    test_share: Annotated[
        float, typer.Option(min=0, max=1, help="Of its samples, if it brings no test set.")
    ] = 0.2,
    allow_code: AllowCode = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per newcomer.")] = False,
) -> None:
    """Give newcomers a model of a finished run.

    Each owner in the data is a newcomer. Nobody else moves, and the run's folder is only read.
    """
    from coterie.studies.finished.placement import arrivals
    from coterie.studies.finished.taking import scaler_for, spec_of

    result, found = opened(folder, data, settings, allow_code=allow_code)

    if not json:
        note_peak(result, found)
    clients = list(
        arrivals(
            found,
            spec_of(result),
            scaler_for(result, found),
            name=name,
            test_share=test_share,
            seed=result.fed.seed,
            taken=result.fed.names,
        )
    )
    placed = result.place(clients, epochs)
    samples = {c.name: len(c) for c in clients}
    if json:
        for row in facts(placed, samples):
            say.line(row)
        return
    say.result(placement_table(placed, samples))
    say.label(
        "next",
        f'in Python: coterie.open_run("{folder}").place((x, y)).model(0)    the adapted model',
    )


def opened(
    folder: Path,
    data: str,
    settings: list[str] | None,
    *,
    allow_code: bool = False,
    labels: bool = True,
    of_one: bool = False,
) -> tuple[Result, Data]:
    """A finished run, and other data read as its own were unless settings say otherwise.

    Samples `of_one` need no column that says whose they are.
    """
    import torch

    from coterie.data.load import load
    from coterie.data.unlabelled import load_unlabelled
    from coterie.studies.finished.opening import open_run, read_like

    result = open_run(folder, allow_code=allow_code)
    reader, threads = read_like(folder, allow_code=allow_code)
    if threads:
        torch.set_num_threads(threads)
    how = options.of_reader(settings) or reader
    if not labels:
        return result, load_unlabelled(data, how)
    try:
        return result, load(data, **how)
    except DataError as error:
        if not of_one or error.code != "D009":
            raise
        alone = {key: value for key, value in how.items() if key not in ("owner", "about")}
        return result, load(data, **alone)


def note_peak(result: Result, found: Data) -> None:
    """Tell of values that are divided by another number than their own."""
    scaling = result.population.scaling
    if scaling["how"] != "none" and scaling["peak"] not in (None, found.peak):
        used, own = f"{scaling['peak']:g}", f"{found.peak:g}"
        say.label("note", f"values are divided by the run's {used}, not by {own}")


def facts(placed: Placement, samples: dict[str, int]) -> list[dict[str, Any]]:
    """Each newcomer as plain values; what it does not have is null."""
    return [
        {
            "newcomer": name,
            "samples": samples[name],
            "model": placed.kind if name in placed.rows else None,
            "cluster": placed.clusters.get(name),
            "accuracy_before": placed.before.values.get(name),
            "accuracy_after": placed.after.values.get(name),
            "bytes_down": placed.bytes_down[name],
            "bytes_up": placed.bytes_up[name],
        }
        for name in placed.names
    ]


def placement_table(placed: Placement, samples: dict[str, int]) -> str:
    """A row for each newcomer."""
    head = ("newcomer", "samples", "model", "before", "after", "sent up", "sent down")
    words = {"shared": "shared", "personal": "own", "clustered": "cluster {}", None: "none"}
    rows = [
        (
            row["newcomer"],
            f"{row['samples']:,}",
            words[row["model"]].format(row["cluster"]),
            say.percent(row["accuracy_before"]),
            say.percent(row["accuracy_after"]),
            say.size(row["bytes_up"]),
            say.size(row["bytes_down"]),
        )
        for row in facts(placed, samples)
    ]
    return say.table(head, rows, numbers=True)
