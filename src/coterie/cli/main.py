"""The way in and out: arguments in, an exit code out, errors in words, a clean end on Ctrl-C."""

from __future__ import annotations

import os
import re
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import TextIO

import click
from click.exceptions import Abort, NoSuchOption

from coterie.cli import say
from coterie.cli.running import UnderWay
from coterie.core import shell, stopping
from coterie.core.errors import (
    CheckpointError,
    ClientError,
    ConfigError,
    CoterieError,
    CoterieWarning,
    DataError,
    StorageError,
)
from coterie.core.suggest import similar

# package.module:function, alone, as a value, or in a list.
OWN_CODE = re.compile(r"""(^|[=,\["' ])[A-Za-z_][\w.]*:[A-Za-z_][\w.]*($|[:,\]"' ])""")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [a for a in given if a != "--debug"] or ["--help"]
    stopping.heed()
    warnings.showwarning = show_warning
    code = call(given, debug)
    stopping.leave_with(code)
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def call(given: Sequence[str], debug: bool = False) -> int:
    """Run one command; whatever goes wrong becomes a message and an exit code."""
    run = UnderWay()

    try:
        from coterie.cli.app import COMMANDS, app, program

        expect_own_code(given)
        one = given[0] in COMMANDS and given[0] != "help"  # which explains the others
        called = program(given[:1]) if one else app
        code = called(list(given), prog_name="coterie", standalone_mode=False, obj=run)
    except CoterieError as error:
        return failed(error, debug, run)
    except click.UsageError as error:
        return failed(usage(error), debug, run)
    except click.ClickException as error:
        return failed(ConfigError(error.format_message(), code="C001"), debug, run)
    except (KeyboardInterrupt, Abort):
        return interrupted(run)
    except BrokenPipeError:
        return 0
    except OSError as error:  # of whatever file nobody expected to be refused
        if debug:
            traceback.print_exc()
        named = f"{error.filename}: " if error.filename else ""
        what = f"{named}{error.strerror or error}"
        return failed(StorageError(what, code="S002", fix="--debug shows where"), False, run)
    except Exception as error:
        if debug:
            traceback.print_exc()
        what = f"{type(error).__name__}: {error}"
        return failed(CoterieError(what, code="X001", fix="--debug shows where"), False, run)
    if code == stopping.INTERRUPTED:  # what typer makes of Ctrl-C
        return interrupted(run)
    return code if isinstance(code, int) else 0


def expect_own_code(given: Sequence[str]) -> None:
    """Find a module that a person named on the command line in the folder where they are.

    At the end of the path, and only then: no file that lies there by chance is ever imported.
    """
    allowed = {"--allow-code", "--trust"} & set(given)
    if (allowed or any(OWN_CODE.search(word) for word in given)) and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def failed(error: CoterieError, debug: bool, run: UnderWay) -> int:
    """Say what went wrong, and give its exit code."""
    if isinstance(error, ClientError) and error.__cause__ is not None:
        traceback.print_exception(error.__cause__)  # the user's own exception comes first
    if debug:
        traceback.print_exception(error)
    say.note(f"error[{error.code}]: {error}")
    if run.saved and not isinstance(error, ConfigError | DataError | CheckpointError):
        say.note(f"  saved  {run.folder}: {run.again}")  # the others would end it once more
    nothing = isinstance(error, ConfigError | DataError) and not run.saved
    say.note(f"{'nothing was run. ' * nothing}explain: {shell.command('help', error.code)}")
    return error.exit


def usage(error: click.UsageError) -> ConfigError:
    """A mistake in the command line, with the way to write it."""
    what, fix = error.format_message().rstrip("."), ""
    command = error.ctx.command_path if error.ctx else "coterie"
    if isinstance(error, NoSuchOption):
        what = f"there is no option {error.option_name}"
        known = [o for p in error.ctx.command.params for o in p.opts] if error.ctx else []
        fix = as_setting(error) or similar(error.option_name, known, "option")
    elif what.startswith("No such command") and error.ctx:
        word = what.split("'")[1]
        what = f"there is no command {word}"
        commands = getattr(error.ctx.command, "commands", {})
        fix = similar(word, commands, "command") or f"one of {', '.join(commands)}"
    return ConfigError(
        what[:1].lower() + what[1:],
        code="C001",
        fix=fix or f"{command} --help shows how it is used",
    )


def as_setting(error: NoSuchOption) -> str:
    """What `run` has an option for is a setting of every command that takes settings."""
    import typer

    from coterie.cli.app import program

    here = error.ctx.command.params if error.ctx else []
    run = typer.main.get_command(program(["run"]))
    assert isinstance(run, click.Group)
    for p in run.commands["run"].params if any(p.name == "settings" for p in here) else ():
        key = re.match(r"[a-z]+(\.[a-z_]+)?(?=$|[:,])", getattr(p, "help", None) or "")
        if error.option_name in p.opts and key:
            return f"here it is a setting: {key[0]}=..."
    return ""


def interrupted(run: UnderWay) -> int:
    """The end after Ctrl-C: what is safe, and how to go on."""
    say.note("\ninterrupted" + ("; the last whole round is saved" if run.saved else ""))
    if run.saved:
        say.label("next", run.again)
    return stopping.INTERRUPTED


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Our own warnings in a line, as the rest of what is said; others as Python writes them."""
    if issubclass(category, CoterieWarning):
        say.label("warning", str(message))
    else:
        say.note(warnings.formatwarning(message, category, filename, lineno, line).rstrip())
