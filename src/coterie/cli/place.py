"""The command for newcomers: who comes after the training, and which model suits it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import say

if TYPE_CHECKING:
    from coterie.studies.newcomers import Placement


def place(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
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
    json: Annotated[bool, typer.Option("--json", help="One JSON object per newcomer.")] = False,
) -> None:
    """Give newcomers a model of a finished run.

    Each owner in the data is a newcomer. Nobody else moves, and the run's folder is only read.
    """
    import torch

    from coterie.config.source import assignment
    from coterie.data.dataset import Scaler
    from coterie.data.load import load
    from coterie.studies.experiment import config_of, open_run
    from coterie.studies.newcomers import arrivals

    config = config_of(folder)
    options = dict(map(assignment, settings)) if settings else dict(config.data.reader)
    torch.set_num_threads(config.engine.threads)
    result = open_run(folder)
    options.pop("test_source", None)  # the run's own, no newcomer's
    found = load(data, **options)
    known = load(config.data.source, **config.data.reader)
    if found.peak != known.peak and config.data.scaling != "none" and not json:
        say.label("note", f"values are divided by the run's {known.peak:g}, not by {found.peak:g}")
    clients = list(
        arrivals(
            found,
            known,
            Scaler.of(known, config.data.scaling),
            name=name,
            test_share=test_share,
            seed=config.seed,
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


def facts(placed: Placement, samples: dict[str, int]) -> list[dict[str, Any]]:
    """Each newcomer as plain values; what it does not have is null."""
    return [
        {
            "newcomer": name,
            "samples": samples[name],
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
    head = ("newcomer", "samples", "cluster", "before", "after", "sent up", "sent down")
    rows = [
        (
            row["newcomer"],
            f"{row['samples']:,}",
            "none" if row["cluster"] is None else row["cluster"],
            say.percent(row["accuracy_before"]),
            say.percent(row["accuracy_after"]),
            say.size(row["bytes_up"]),
            say.size(row["bytes_down"]),
        )
        for row in facts(placed, samples)
    ]
    return say.table(head, rows, numbers=True)
