"""The demo: two methods, offline, and for whom the second is better."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from coterie.cli import running, say
from coterie.cli.progress import warnings, watching
from coterie.cli.running import Done
from coterie.cli.train import Json, NoReport, Quiet, result_event, runs_table


def demo(
    method: Annotated[
        str | None, typer.Option(help="The method beside fedavg; see coterie methods.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of each method.")] = 20,
    out: Annotated[Path, typer.Option(help="The folder of the two runs.")] = Path("runs/demo"),
    no_report: NoReport = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train two methods, offline, in a minute.

    20 clients in 4 hidden groups hold handwritten digits; each group sees them at another angle.
    """
    from coterie.config import load
    from coterie.core.version import __version__
    from coterie.methods import METHODS

    second = method or next(name for name in ("fedclust", "local") if name in METHODS)
    names = tuple(dict.fromkeys(("fedavg", second)))
    configs = [load(None, [("method", name), ("train.rounds", rounds), *DEMO]) for name in names]
    if not (quiet or json):
        say.note(
            f"coterie {__version__} · digits (1,797 images, in scikit-learn) · "
            f"20 clients in 4 hidden groups (rotated 0°/90°/180°/270°) · seed 0"
        )
    runs = {}
    for name, config in zip(names, configs, strict=True):
        clear(out / name)
        with watching(name, quiet=quiet, json=json) as listen:
            runs[name] = running.execute(config, out / name, listen, page=False)
    page = None if no_report else page_of(runs[names[-1]], out / "report.html")
    if json:
        for name, done in runs.items():
            say.line(result_event(name, done))
        return
    say.result(runs_table(runs))
    if len(runs) == 2:
        say.result(compared(runs))
    say.label("records", f"{out}/*/  run.toml, metrics.csv, clusters.csv, summary.json")
    if page:
        say.label("report", f"{page}    open it: coterie open {out}")
    say.label(
        "next", "coterie init my.toml       write a commented experiment file for your own data"
    )


DEMO = [
    ("data.source", "digits"),
    ("partition.kind", "rotation"),
    ("partition.clients", 20),
    ("model.name", "cnn-s"),
    ("train.local_epochs", 2),
    ("train.batch_size", 16),
]


def clear(folder: Path) -> None:
    """Make room for a new demo where an old one lies; anything else is left alone."""
    if (folder / "run.toml").exists():
        shutil.rmtree(folder)


def page_of(done: Done, file: Path) -> Path | None:
    """The page of both runs: that of the second, which finds the first beside it."""
    from coterie.studies.training import write_page

    return write_page(done.result, file, warnings)


def compared(runs: Mapping[str, Done]) -> str:
    """For how many clients one of two runs is better than the other, and whether by chance."""
    from coterie.runs.statistics import wilcoxon

    (first, a), (second, b) = ((n, done.result.accuracy.values) for n, done in runs.items())
    both = [client for client in a if client in b]
    return wilcoxon([b[c] for c in both], [a[c] for c in both], second, first).sentence
