"""Options that several commands have, and the experiment that a command line asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.core.errors import ConfigError

if TYPE_CHECKING:
    from coterie.config import Config


def a_run(folder: Path | None) -> Path | None:
    """Refuse a folder without a run, before anything heavy is imported."""
    from coterie.runs.whereabouts import expect_run

    if folder is not None:
        expect_run(folder)
    return folder


Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.", callback=a_run)]
Settings = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FILE] [KEY=VALUE]...", help="An experiment file, and settings."),
]
Out = Annotated[Path | None, typer.Option(help="The folder of the run.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]
JsonEvents = Annotated[bool, typer.Option("--json", help="One JSON object per line on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]
NoReport = Annotated[bool, typer.Option("--no-report", help="Write no report.html.")]
Live = Annotated[bool, typer.Option("--live", help="Watch the run in the browser.")]
Plot = Annotated[Path | None, typer.Option(help="Write the picture as an HTML page.")]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Without TLS and keys; this machine only.")
]
AllowCode = Annotated[
    bool,
    typer.Option(
        "--allow-code", help="Import the method or network of your own that a file names."
    ),
]
Method = Annotated[str | None, typer.Option(help="method: see coterie methods.")]
Kind = Annotated[
    str | None, typer.Option(help="partition.kind, as dirichlet:0.3 or rotation+quantity.")
]
Clients = Annotated[int | None, typer.Option(help="partition.clients")]
Model = Annotated[str | None, typer.Option(help="model.name: see coterie models.")]
Seed = Annotated[int | None, typer.Option(help="seed")]


def assigned(
    settings: Iterable[str] | None, flags: Mapping[str, Any] | None = None
) -> list[tuple[str, Any]]:
    """Settings as key and value, and above them the flags that were given."""
    from coterie.config.source import assignment

    given = [assignment(text) for text in settings or []]
    return given + [(key, v) for key, v in (flags or {}).items() if v is not None]


def of_data(settings: Iterable[str] | None) -> list[str]:
    """Settings of [data] with their table, where they were written without: size=32, label=kind.

    >>> of_data(["size=32", "data.size=32", "separator=;"])
    ['data.size=32', 'data.size=32', 'data.options.separator=;']
    """
    from coterie.config.schema import Data

    known, whole = {f.name for f in fields(Data)}, []
    for setting in settings or []:
        key = setting.partition("=")[0].strip()
        table = "" if "." in key else "data." if key in known else "data.options."
        whole.append(f"{table}{setting}")
    return whole


def source_among(source: str, settings: list[str] | None) -> tuple[str, list[str]]:
    """The data and the settings, also where data are named like any other setting.

    >>> source_among("digits", None), source_among("train.lr=0.1", ["data.source=digits"])
    (('digits', []), ('digits', ['train.lr=0.1']))
    """
    words, key = [source, *(settings or [])], "data.source="
    named = [word for word in words if word.startswith(key)]
    if "=" not in source or Path(source).exists() or len(named) != 1:
        return source, words[1:]
    return named[0].removeprefix(key), [word for word in words if word not in named]


def of_reader(settings: Iterable[str] | None) -> dict[str, Any]:
    """Options of a reader alone, written with their table or without.

    >>> of_reader(["size=32", "data.gray=true"])
    {'size': 32, 'gray': True}
    """
    return {key.split(".")[-1]: value for key, value in assigned(settings)}


def sort(
    settings: list[str] | None, flags: Mapping[str, Any]
) -> tuple[Path | None, list[tuple[str, Any]]]:
    """The experiment file among the arguments, and the settings and flags."""
    files = [s for s in settings or [] if "=" not in s or Path(s).is_file()]
    if len(files) > 1:
        raise ConfigError(
            f"more than one experiment file: {', '.join(files)}",
            code="C001",
            fix="name one file; settings are written key=value",
        )
    given = assigned((s for s in settings or [] if s not in files), flags)
    return (Path(files[0]) if files else None), given


def experiment(
    settings: list[str] | None, flags: Mapping[str, Any], *, allow_code: bool = False
) -> Config:
    """The experiment that a file, settings and flags ask for, whose data are at hand."""
    from coterie.config import load

    config = load(*sort(settings, flags), allow_code=allow_code)
    data_at_hand(config)
    return config


def words(text: str) -> list[str]:
    """The words of a list with commas.

    >>> words("mnist, cifar10,")
    ['mnist', 'cifar10']
    """
    return [word.strip() for word in text.split(",") if word.strip()]


def expect_format(format: str) -> None:
    """Refuse a format that no table is written in."""
    from coterie.runs.text_table import FORMATS

    if format not in FORMATS:
        what = f"there is no format {format}"
        raise ConfigError(what, code="C001", fix=f"one of {', '.join(FORMATS)}")


def data_at_hand(config: Config) -> None:
    """Refuse a named data set that is not on this machine, before anything heavy is imported."""
    from coterie.data import named

    name = named.canonical(config.data.source)
    if name and not named.NAMED[name].embedded:
        named.require(name)
