"""MLflow: one MLflow run per run, in a database beside the runs or on the server the user names.

Without MLFLOW_TRACKING_URI the store is `mlflow.db` beside the run's folder, so that the runs under
one folder are seen together: `mlflow ui --backend-store-uri sqlite:///runs/mlflow.db`.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = "coterie.folder"  # the tag by which a resumed run finds itself again


class MLflow:
    """Settings as parameters and numbers as metrics, by round."""

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
        known = (
            self.client.search_runs(
                [home], f"tags.`{FOLDER}` = '{tag(self.folder)}'", max_results=1
            )
            if at
            else []
        )
        if known:
            self.id = known[0].info.run_id
            self.client.update_run(self.id, status="RUNNING")
            return
        made = self.client.create_run(
            home, run_name=self.folder.name, tags={FOLDER: tag(self.folder)}
        )
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
