"""The command that looks at samples, and at who would hold what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import options, say
from coterie.cli.options import Json, Plot
from coterie.core.shell import command
from coterie.core.units import count

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
    clients: Annotated[
        int | None, typer.Option(help="How many clients; 20, or of owners all.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of the partition.")] = 0,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Show data, and who would hold what.

    With --partition: which labels each client would have.
    """
    source, settings = options.source_among(source, settings)
    flags: dict[str, Any] = {"data.source": source, "partition.clients": clients, "seed": seed}
    flags |= dict(options.assigned(options.of_data(settings)))
    if partition or plot:
        flags["partition.kind"] = partition or "iid"
    config = options.experiment(None, flags)
    from coterie.data.load import load

    found = load(source, **config.data.reader)
    if json:
        say.line(facts(found))
    else:
        say.result(picture_of_data(found))
    if partition or plot:
        from coterie.studies.run import experiment

        people = experiment.population(config)
        counts = people.label_counts().tolist()
        if json:
            for name, row, group in zip(people.names, counts, groups(people), strict=True):
                say.line({"client": name, "group": group, "labels": row, "samples": sum(row)})
        else:
            say.result()
            say.result(picture(people, counts, found.classes))
        if plot:
            from coterie.report.script import write_figure

            write_figure(people.plot(), plot)
            say.label("plot", str(plot))
    if not json:
        say.label("next", to_train(source, options.of_data(settings), partition, clients, seed))


def to_train(
    source: str, settings: list[str], kind: str | None, clients: int | None, seed: int
) -> str:
    """The command that trains on the data that were shown, divided as they were shown."""
    owned = any(setting.startswith("data.owner=") for setting in settings)
    words: list[str] = ["--data", source, *settings]
    if kind or not owned:  # whoever names owners makes them the clients
        words += ["--partition", kind or "dirichlet:0.3"]
    words += ["--clients", str(clients)] if clients is not None else []
    words += ["--seed", str(seed)] if seed else []
    return command("run", *words)


def facts(found: Data) -> dict[str, Any]:
    """What was read, as plain values."""
    return {
        "name": found.name,
        "shape": list(found.shape),
        "classes": list(found.classes),
        "samples": len(found.y),
        "test_samples": None if found.y_test is None else len(found.y_test),
        "owners": None if found.owner is None else len(set(found.owner.tolist())),
        "owner_names": list(found.owners) or None,
        "counts": found.y.bincount(minlength=len(found.classes)).tolist(),
    }


def picture_of_data(found: Data) -> str:
    """What was read, with a bar for each class."""
    about = facts(found)
    test = f", {about['test_samples']:,} test" if about["test_samples"] is not None else ""
    owners = f", {count(about['owners'], 'owner')}" if about["owners"] else ""
    if found.owners:
        owners += f": {', '.join(found.owners[:10])}" + ", ..." * (len(found.owners) > 10)
    head = (
        f"{about['name']}: {count(about['samples'], 'sample')}{test} of shape "
        f"{'x'.join(map(str, about['shape']))}, "
        f"{count(len(found.classes), 'class', 'classes')}{owners}"
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
