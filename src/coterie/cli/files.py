"""Commands about experiment files: init, check."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.cli import options, say
from coterie.core.errors import ConfigError
from coterie.core.shell import command
from coterie.core.units import count

if TYPE_CHECKING:
    from coterie.config import Config


def init(
    file: Annotated[Path, typer.Argument(help="The experiment file to write.")],
    data: Annotated[str, typer.Option(help="A name, file or folder.")] = "digits",
    method: Annotated[str, typer.Option(help="See coterie methods.")] = "kin",
    partition: Annotated[str, typer.Option(help="The kind of partition.")] = "dirichlet",
    model: Annotated[str | None, typer.Option(help="See coterie models.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> None:
    """Write a commented experiment file."""
    from coterie.config.resolved import template

    if file.exists() and not force:
        raise ConfigError(
            f"{file} exists",
            code="C015",
            fix=f"choose another name, or: `{command('init', file, '--force')}`",
        )
    text = template(data=data, method=method, partition=partition, model=model)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    except OSError as cause:
        raise ConfigError(
            f"{file} cannot be written: {cause.strerror}", code="C010", fix="choose another place"
        ) from cause
    say.result(f"wrote {file}")
    say.label("next", f"{command('check', file)}    then: {command('run', file)}")


def check(
    file: Annotated[Path, typer.Argument(help="An experiment file.")],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings above the file.")
    ] = None,
    explain: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="Say where a value came from.")
    ] = None,
    resolved: Annotated[
        bool, typer.Option("--resolved", help="Print the experiment with every default.")
    ] = False,
    allow_code: options.AllowCode = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Look for problems in a file, without training.

    Shows what the experiment would do: clients, samples, parameters, bytes per round.
    """
    from coterie import config as configs

    config = configs.load(file, options.assigned(settings), allow_code=allow_code)
    if explain:
        for key in explain:
            say.result(configs.explain(config, key))
        return
    if resolved:
        say.result(configs.resolved(config).rstrip())
        return
    options.data_at_hand(config)
    found = plan(config)
    if json:
        say.line({"file": str(file), "notes": list(config.notes), **found})
        return
    for text in config.notes:
        say.label("note", text)
    for word, text in describe(config, found).items():
        say.result(f"{word:<8}{text}")
    say.label("next", command("run", file, *(settings or [])))


def plan(config: Config) -> dict[str, Any]:
    """What an experiment would do, in numbers: clients, samples, parameters, bytes."""
    from coterie.data.divide.kind_words import told
    from coterie.studies.run import experiment

    clients = experiment.population(config)
    config = experiment.with_network(config, clients.shape)
    parameters = experiment.network(config, clients.shape, clients.classes).size
    sizes = clients.sizes.long()
    drawn = max(1, int(config.train.participation * len(sizes) + 0.5))
    model_bytes = 4 * parameters
    return {
        "method": config.method,
        "data": config.data.source,
        "shape": list(clients.shape),
        "classes": clients.classes,
        "partition": told(config.partition.spec),
        "clients": len(sizes),
        "samples": int(sizes.sum()),
        "smallest_client": int(sizes.min()),
        "largest_client": int(sizes.max()),
        "model": config.model.name,
        "parameters": parameters,
        "rounds": config.train.rounds,
        "clients_per_round": drawn,
        "model_bytes": model_bytes,
        "bytes_per_round": {"down": drawn * model_bytes, "up": drawn * model_bytes},
        "seed": config.seed,
    }


def describe(config: Config, found: dict[str, Any]) -> dict[str, str]:
    """The plan in words."""
    shape = "x".join(map(str, found["shape"]))
    down = say.size(found["bytes_per_round"]["down"])
    local = (
        count(config.train.local_steps, "step")
        if config.train.local_steps
        else count(config.train.local_epochs, "epoch")
    )
    return {
        "method": f"{found['method']}, {count(found['rounds'], 'round')} of {local}, "
        f"seed {found['seed']}",
        "data": f"{found['data']}: {count(found['samples'], 'training sample')} of {shape}, "
        f"{count(found['classes'], 'class', 'classes')}",
        "clients": f"{found['clients']} by {found['partition']}, "
        f"{found['smallest_client']:,} to {found['largest_client']:,} samples, "
        f"{found['clients_per_round']} drawn each round",
        "model": f"{found['model']}, {count(found['parameters'], 'parameter')} "
        f"({say.size(found['model_bytes'])})",
        "traffic": f"about {down} down and as much up each round, "
        f"if whole models travel to everyone drawn",
    }
