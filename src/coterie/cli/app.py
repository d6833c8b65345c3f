"""The commands, in the order in which one meets them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from coterie.cli import (
    atlas,
    audit,
    compare,
    data,
    doctor,
    federation,
    files,
    inspecting,
    joining,
    lists,
    models,
    newcomers,
    report,
    reproduce,
    train,
    tune,
)
from coterie.core.version import __version__

typer.core.HAS_RICH = False  # or "[default: x]" is escaped for rich, which prints no help here


class Argument(typer.core.TyperArgument):
    """An argument that keeps its help: click 8.5 has one of its own and empties typer's."""

    def __init__(self, *, help: str | None = None, **given: Any) -> None:
        super().__init__(help=help, **given)
        self.help = help


class Command(typer.core.TyperCommand):
    """A command that tells its arguments once: typer does so among the options, click 8.5 anew."""

    def format_arguments(self, ctx: Any, formatter: Any) -> None:
        """Leave it to typer."""


setattr(typer.main, "TyperArgument", Argument)  # noqa: B010  a type checker minds the plain form


def version(asked: bool) -> None:
    """Print the version and stop."""
    if asked:
        typer.echo(f"coterie {__version__}")
        raise typer.Exit


def options(
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=version, is_eager=True)
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error (any position).")
    ] = False,
) -> None:
    """Clustered and personalised federated learning."""


COMMANDS: dict[str, Callable[..., None]] = {
    **{
        command.__name__: command
        for command in (
            train.demo,
            files.init,
            files.check,
            data.data,
            inspecting.inspect,
            train.run,
            train.resume,
            compare.compare,
            tune.tune,
            reproduce.reproduce,
            atlas.atlas,
            newcomers.newcomers,
            newcomers.place,
            models.export,
            models.predict,
            report.report,
            report.live,
            audit.audit,
            federation.certs,
            federation.serve,
            joining.join,
            lists.methods,
            lists.models,
            lists.datasets,
            doctor.doctor,
        )
    },
    "open": report.open_page,
    "help": lists.explain,
}


def program(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with these commands: to describe them all takes longer than to run one."""
    made = typer.Typer(
        name="coterie",
        help="Clustered and personalised federated learning.",
        epilog="First steps: coterie demo, then coterie init my.toml and coterie run my.toml.",
        rich_markup_mode=None,  # rich would be imported for --help
        pretty_exceptions_enable=False,
        suggest_commands=False,  # our own message names the nearest command
    )
    made.callback()(options)
    for name in names:
        made.command(name, cls=Command)(COMMANDS[name])
    return made


app = program()
