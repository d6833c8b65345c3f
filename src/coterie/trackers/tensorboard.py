"""TensorBoard: scalars in the run's folder, read by `tensorboard --logdir RUN`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter


class TensorBoard:
    """Scalars by round, written to RUN/tensorboard."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "tensorboard"
        self.writer: Any = None  # it makes its file when it is made: not before the run begins

    def start(self, facts: Mapping[str, Any], at: int) -> None:
        """Open the log; rounds that a crash left behind the resumed one are hidden."""
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
