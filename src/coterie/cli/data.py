"""The command that shows data: what was read, and who would hold what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import say
from coterie.cli.options import Json, Plot

if TYPE_CHECKING:
    from coterie.data.dataset import Data
    from coterie.data.population import Population

BLOCKS = " ▁▂▃▄▅▆▇█"


def data(
    source: Annotated[str, typer.Argument(help="A name, a file or a folder.")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Options of the reader, as label=species."),
    ] = None,
    partition: Annotated[
        str | None, typer.Option(help="Show who would hold what, as dirichlet:0.3.")
    ] = None,
    clients: Annotated[int, typer.Option(help="How many clients.")] = 20,
    seed: Annotated[int, typer.Option(help="The seed of the partition.")] = 0,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Show data, and who would hold what.

    With --partition: which labels each client would have.
    """
    from coterie.config import load as load_config
    from coterie.config.schema import Data as Table
    from coterie.config.source import assignment

    given = [("data.source", source), ("partition.clients", clients), ("seed", seed)]
    for key, value in map(assignment, settings or []):
        given.append((f"data.{key}" if key in Table.reader_keys else f"data.options.{key}", value))
    if partition or plot:
        given.append(("partition.kind", partition or "iid"))
    config = load_config(None, given)
    from coterie.cli.train import data_at_hand

    data_at_hand(config)
    from coterie.data.load import load

    found = load(source, **config.data.reader)
    if json:
        say.line(facts(found))
    else:
        say.result(picture_of_data(found))
    if partition or plot:
        from coterie.studies import experiment

        people = experiment.population(config)
        counts = people.label_counts().tolist()
        if json:
            for name, row, group in zip(people.names, counts, groups(people), strict=True):
                say.line({"client": name, "group": group, "labels": row, "samples": sum(row)})
        else:
            say.result()
            say.result(picture(people, counts, found.classes))
        if plot:
            plot.parent.mkdir(parents=True, exist_ok=True)
            people.plot().write_html(plot, include_plotlyjs=True)
            say.label("plot", str(plot))
    if not json:
        say.label("next", f"coterie run --data {source} --partition {partition or 'dirichlet:0.3'}")


def facts(found: Data) -> dict[str, Any]:
    """What was read, as plain values."""
    return {
        "name": found.name,
        "shape": list(found.shape),
        "classes": list(found.classes),
        "samples": len(found.y),
        "test_samples": None if found.y_test is None else len(found.y_test),
        "owners": None if found.owner is None else len(set(found.owner.tolist())),
        "counts": found.y.bincount(minlength=len(found.classes)).tolist(),
    }


def picture_of_data(found: Data) -> str:
    """What was read, with a bar for each class."""
    about = facts(found)
    test = f", {about['test_samples']:,} test" if about["test_samples"] is not None else ""
    owners = f", {about['owners']:,} owners" if about["owners"] else ""
    head = (
        f"{about['name']}: {about['samples']:,} samples{test} of shape "
        f"{'x'.join(map(str, about['shape']))}, {len(found.classes)} classes{owners}"
    )
    top = max(about["counts"])
    shown = list(zip(found.classes, about["counts"], strict=True))
    rows = [(n, f"{c:,}", "█" * round(30 * c / top)) for n, c in shown[:40]]
    more = f"\n… and {len(shown) - 40} classes more" * (len(shown) > 40)
    return f"{head}\n\n{say.table(('class', 'samples', ''), rows)}{more}"


def groups(people: Population) -> list[int | None]:
    """The planted group of each client, None where there is none."""
    return [None] * len(people) if people.group is None else people.group.tolist()


def picture(people: Population, counts: list[list[int]], classes: tuple[str, ...]) -> str:
    """A row for each client, a block for each label: the higher, the more samples."""
    top = max(max(row) for row in counts)
    head = "".join(str(k % 10) for k in range(len(classes)))
    grouped = people.group is not None
    rows = []
    for name, row, group in zip(people.names, counts, groups(people), strict=True):
        blocks = "".join(block(c, top) for c in row)
        rows.append((name, f"{sum(row):,}", *([str(group)] if grouped else []), blocks))
    titles = ("client", "samples", *(["group"] if grouped else []), head)
    return f"{say.table(titles, rows)}\nblocks: samples of a label, the tallest is {top:,}"


def block(count: int, top: int) -> str:
    """One label's samples as a block; few are still seen, none is empty.

    >>> block(0, 100), block(1, 100), block(100, 100)
    ('·', '▁', '█')
    """
    return "·" if not count else BLOCKS[max(1, round(8 * count / top))]
