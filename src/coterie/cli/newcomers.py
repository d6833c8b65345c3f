"""The command that holds clients out and lets them join."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli import running, say
from coterie.cli.progress import watching
from coterie.cli.train import Json, Quiet, data_at_hand, sort
from coterie.core.errors import ConfigError

if TYPE_CHECKING:
    from coterie.runs.newcomers import Joined


def newcomers(
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE] [KEY=VALUE]...", help="An experiment file, and settings."),
    ] = None,
    method: Annotated[str | None, typer.Option(help="method: see coterie methods.")] = None,
    share: Annotated[
        float | None, typer.Option(help="newcomers.share: of the clients; 0.2 if not given.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="newcomers.epochs: of adaptation.")] = None,
    shots: Annotated[
        str | None, typer.Option(help="newcomers.shots: also with so few of a class, as 1,5.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder of the run.")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Hold clients out, train, and let them join.

    They are seen neither in training nor in clustering. The same command with the same --out goes
    on after a stop.
    """
    from coterie import config as configs

    file, given = sort(settings or [])
    flags = {"method": method, "newcomers.share": share, "newcomers.epochs": epochs}
    given += [(key, value) for key, value in flags.items() if value is not None]
    if shots is not None:
        given.append(("newcomers.shots", several(shots)))
    config = configs.load(file, given)
    if not config.newcomers.share:
        config = configs.load(file, [*given, ("newcomers.share", 0.2)])
    data_at_hand(config)
    from coterie.runs import newcomers as joining
    from coterie.studies import experiment

    with watching(config.method, quiet=quiet, json=json) as listen:
        if out and (out / "run.toml").exists():
            then = (out / "run.toml").read_text()
            experiment.refuse_changes(then, config, ())
            done = running.proceed(out, listen)
        else:
            done = running.execute(config, out, listen)
    folder = done.result.folder
    assert folder is not None
    found = joining.read(folder)
    assert found is not None
    if json:
        for row in found.rows:
            say.line(row._asdict())
        return
    say.result(newcomers_table(found))
    say.result(sentence(found, len(done.result.population)))
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
    head = ["samples", *(f"{e} epoch{'s' * (e != 1)}" for e in range(found.epochs + 1))]
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
    who = f"{many} newcomers join" if many > 1 else "1 newcomer joins"
    return (
        f"{who} {trained} clients: mean accuracy of their own test sets; what was sent placed one "
        "newcomer, adaptation sends nothing"
    )
