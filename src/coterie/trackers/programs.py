"""TensorBoard, MLflow and Weights & Biases: each loads its package when the run starts."""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = "coterie.folder"  # the tag by which a resumed MLflow run finds itself again


class TensorBoard:
    """Scalars by round in RUN/tensorboard, read by `tensorboard --logdir RUN`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "tensorboard"
        self.writer: Any = None  # it makes its file when it is made: not before the run begins

    def start(self, facts: Mapping[str, Any], at: int) -> None:
        """Open the log; rounds that a crash left behind the resumed one are hidden."""
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(self.folder), purge_step=at + 1 if at else None)
        if not at:
            rows = "".join(f"| {key} | {value} |\n" for key, value in facts.items())
            self.writer.add_text("settings", f"| key | value |\n|---|---|\n{rows}", 0)

    def log(self, at: int, numbers: Mapping[str, float]) -> None:
        """One scalar per number, on disk at once."""
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, at)
        self.writer.flush()

    def end(self, whole: bool) -> None:
        """Close the log."""
        if self.writer is not None:
            self.writer.close()


class MLflow:
    """One MLflow run per run, in a database beside the runs or on the server the user names.

    Without MLFLOW_TRACKING_URI the store is `mlflow.db` beside the run's folder, so that the runs
    under one folder are seen together: `mlflow ui --backend-store-uri sqlite:///runs/mlflow.db`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.client: Any = None
        self.id = ""

    def start(self, facts: Mapping[str, Any], at: int) -> None:
        """A new MLflow run, or the one that this folder had before it was resumed."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
        from mlflow.tracking import MlflowClient

        where = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{self.folder.parent}/mlflow.db")
        self.client = MlflowClient(tracking_uri=where)
        experiment = self.client.get_experiment_by_name("coterie")
        home = experiment.experiment_id if experiment else self.client.create_experiment("coterie")
        mine = tag(self.folder)
        same = f"tags.`{FOLDER}` = '{mine}'"
        known = self.client.search_runs([home], same, max_results=1) if at else []
        if known:
            self.id = known[0].info.run_id
            self.client.update_run(self.id, status="RUNNING")
            return
        made = self.client.create_run(home, run_name=self.folder.name, tags={FOLDER: mine})
        self.id = made.info.run_id
        for key, value in facts.items():
            self.client.log_param(self.id, key, value)

    def log(self, at: int, numbers: Mapping[str, float]) -> None:
        """All numbers of a round in one request."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self.client.log_batch(
            self.id, metrics=[Metric(name, value, now, at) for name, value in numbers.items()]
        )

    def end(self, whole: bool) -> None:
        """Say how it ended."""
        if self.id:
            self.client.set_terminated(self.id, "FINISHED" if whole else "KILLED")


def tag(folder: Path) -> str:
    """A folder as it can stand between the quotes of a search.

    >>> tag(Path("/a/bob's"))
    '/a/bob-s'
    """
    return str(folder).replace("'", "-")


class WandB:
    """Weights & Biases: offline in RUN/wandb unless the user says where it may go.

    A run is uploaded while it goes only if WANDB_MODE is online or WANDB_BASE_URL names a server;
    otherwise `wandb sync RUN/wandb/offline-run-*` does it later, on purpose.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run: Any = None

    def start(self, facts: Mapping[str, Any], at: int) -> None:
        """A run of its own id; a resumed run keeps the id it had."""
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        (self.folder / "wandb").mkdir(parents=True, exist_ok=True)
        note = self.folder / "wandb" / "run-id"
        if not (at and note.exists()):
            note.write_text(secrets.token_hex(4))
        mode = mode_of(os.environ)
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "coterie"),
            name=self.folder.name,
            id=note.read_text(),
            dir=str(self.folder),
            config=dict(facts),
            mode=mode,
            resume="allow" if mode == "online" else None,
            settings=wandb.Settings(console="off", silent=True, x_disable_stats=True),
        )

    def log(self, at: int, numbers: Mapping[str, float]) -> None:
        """The numbers of a round as one step."""
        self.run.log(dict(numbers), step=at)

    def end(self, whole: bool) -> None:
        """Finish; a run that was stopped is marked so."""
        if self.run is not None:
            self.run.finish(exit_code=0 if whole else 1)


def mode_of(environment: Mapping[str, str]) -> str:
    """Where the numbers may go: what WANDB_MODE says, and offline unless a host was named.

    >>> mode_of({}), mode_of({"WANDB_BASE_URL": "http://here"}), mode_of({"WANDB_MODE": "online"})
    ('offline', 'online', 'online')
    """
    named = "online" if environment.get("WANDB_BASE_URL") else "offline"
    return environment.get("WANDB_MODE") or named
