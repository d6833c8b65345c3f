"""Commands that use a run's models elsewhere: export takes them away, predict asks them."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli import options, say
from coterie.cli.newcomers import note_peak, opened
from coterie.cli.options import AllowCode, Run
from coterie.core.errors import ConfigError
from coterie.core.shell import command

if TYPE_CHECKING:
    from coterie.studies.run.result import Result

Kind = StrEnum("Kind", ["safetensors", "pt2", "onnx"])


def export(
    folder: Run,
    client: Annotated[str | None, typer.Option(help="The model that this client uses.")] = None,
    cluster: Annotated[int | None, typer.Option(help="The model of this cluster.")] = None,
    everybody: Annotated[bool, typer.Option("--all", help="Every client's, a file each.")] = False,
    format: Annotated[
        Kind, typer.Option(help="safetensors; pt2: torch.export; onnx: the extra `onnx`.")
    ] = Kind.safetensors,
    out: Annotated[
        Path | None, typer.Option(help="The file, with --all the folder; else RUN/export.")
    ] = None,
    allow_code: AllowCode = False,
) -> None:
    """Write a run's models as files that need no coterie.

    Each holds its network, the names of the classes and the scaling. Where all clients share one
    model, none need be named.
    """
    from coterie.studies.finished.opening import open_run

    if sum((client is not None, cluster is not None, everybody)) > 1:
        raise ConfigError(
            "--client, --cluster and --all exclude each other", code="C001", fix="give one of them"
        )
    result = open_run(folder, allow_code=allow_code)
    home = out if out and everybody else folder / "export"
    if everybody:
        for name, file in files(list(result.fed.names), home, format.value).items():
            say.result(str(result.save(file, name)))
        return
    if client is None and cluster is None:
        cluster = the_only(result)
    stem = slug(client) if client is not None else f"cluster-{cluster}"
    file = out or home / f"{stem}.{format.value}"
    say.result(str(result.save(file, client, cluster=cluster)))
    code = ["--allow-code"] if file.suffix == ".pt2" else []
    say.label("next", command("predict", file, "--data", "FILE", *code))


def the_only(result: Result) -> int:
    """The one model that all share as it is; anything else is refused."""
    held = result.state.assign[result.state.placed].unique().tolist()
    score = result.method.score
    if len(held) == 1 and score.trains is None and score.private == "none":
        return int(held[0])
    names = ", ".join(result.fed.names[:5])
    raise ConfigError(
        "the run has several models",
        code="C037",
        why=f"clients {names}, ...; clusters {', '.join(map(str, held[:10]))}",
        fix="say whose: --client NAME, --cluster C or --all",
    )


def slug(name: str) -> str:
    """A name as a file can have it.

    >>> slug("St. Mary's / ward 3")
    'St._Mary_s_ward_3'
    """
    return re.sub(r"[^\w.-]+", "_", name).strip(".") or "_"


def files(names: list[str], home: Path, suffix: str) -> dict[str, Path]:
    """A file for each client; names that would share one are numbered."""
    found: dict[str, Path] = {}
    for i, name in enumerate(names):
        file = home / f"{slug(name)}.{suffix}"
        found[name] = file if file not in found.values() else home / f"{slug(name)}-{i}.{suffix}"
    return found


def predict(
    source: Annotated[Path, typer.Argument(metavar="RUN|FILE", help="A run, or an export of it.")],
    data: Annotated[str, typer.Option(help="The samples: a name, file or folder.")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Options of the reader; else the run's."),
    ] = None,
    client: Annotated[str | None, typer.Option(help="Whose model; else as a newcomer's.")] = None,
    cluster: Annotated[int | None, typer.Option(help="The model of this cluster.")] = None,
    unlabelled: Annotated[
        bool, typer.Option("--no-labels", help="The samples have no labels: a table, x, images.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="The CSV file; else stdout.")] = None,
    allow_code: AllowCode = False,
) -> None:
    """Predict the classes of samples.

    Without --client or --cluster the samples are a newcomer's: the method says which model suits
    them, and why. By samples without labels nobody can be placed, unless there is one model.
    """
    if source.is_dir() or not source.exists():
        options.a_run(source)  # before anything heavy is imported
    from coterie.core import storage
    from coterie.studies.finished import predicting

    if source.is_dir():
        labelled = not unlabelled
        named = client is not None or cluster is not None
        result, found = opened(
            source, data, settings, allow_code=allow_code, labels=labelled, of_one=named
        )
        note_peak(result, found)
        if unlabelled and not named:
            cluster = the_only(result)
        if client is not None or cluster is not None:
            model = predicting.for_client(result, client, found, cluster)
        else:
            model, why = predicting.for_newcomer(result, found)
            for text in why:
                say.label("placed", text)
    else:
        from coterie.data.dataset import Scaler
        from coterie.data.load import load
        from coterie.data.unlabelled import load_unlabelled
        from coterie.models.loading import load_model
        from coterie.studies.finished.taking import scaled_by

        model, how = load_model(source, allow_code=allow_code), options.of_reader(settings)
        found = load_unlabelled(data, how) if unlabelled else load(data, **how)
        if model.peak is None:
            model = scaled_by(model, Scaler.of(found, model.spec.scaling["how"]))
    said, right = predicting.predict(model, found)
    if out:
        storage.make_folder(out.parent)
        storage.replace_file(out, said.to_csv().encode())
        say.label("wrote", str(out))
    else:
        say.result(said.to_csv().rstrip("\n"))
    if right is not None:
        say.label("right", f"{say.percent(right)} of {len(said.labels):,} samples")
