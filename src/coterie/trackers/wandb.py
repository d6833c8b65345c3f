"""Weights & Biases: offline in the run's folder unless the user says where it may go.

A run is uploaded while it goes only if WANDB_MODE is online or WANDB_BASE_URL names a server;
otherwise `wandb sync RUN/wandb/offline-run-*` does it later, on purpose.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class WandB:
    """Settings as config and numbers by round, in RUN/wandb."""

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
