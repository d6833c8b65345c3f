"""Options that several commands have: the same name, the same meaning, the same words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]
Plot = Annotated[Path | None, typer.Option(help="Write the picture as an HTML page.")]

Kind = Annotated[
    str | None, typer.Option(help="partition.kind, as dirichlet:0.3 or rotation+quantity.")
]
Clients = Annotated[int | None, typer.Option(help="partition.clients")]
Model = Annotated[str | None, typer.Option(help="model.name: see coterie models.")]
Seed = Annotated[int | None, typer.Option(help="seed")]
