"""The command line. Nothing heavy is imported before a command needs it.

May touch: everything.
"""

import warnings

with warnings.catch_warnings():  # typer re-exports names that newer versions of click deprecate
    warnings.simplefilter("ignore", DeprecationWarning)
    import typer  # noqa: F401

from coterie.cli.app import app
from coterie.cli.main import main

__all__ = ["app", "main"]
