"""The server: an experiment, trained with whoever is in the federation."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from coterie.config import load
from coterie.studies.remote.federation import run_federation

EXPERIMENT = Path(__file__).with_name("experiment.toml")
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    out, resume = Path(str(context.run_config["out"])), bool(context.run_config["resume"])
    run_federation(grid, load(EXPERIMENT), out, print, resume=resume)
