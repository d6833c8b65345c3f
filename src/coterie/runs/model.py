"""model.json in a run's folder: all that is needed to use its models without its data.

initial.safetensors lies beside it where the initial numbers follow from no seed: the network was
given in Python as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from coterie.core import storage
from coterie.core.errors import CheckpointError, CoterieError
from coterie.core.layout import Layout
from coterie.core.reading import DAMAGE, read_bytes, reason
from coterie.models.spec import Given, ModelSpec
from coterie.runs.files import understanding

FILE, INITIAL = "model.json", "initial.safetensors"
FORMAT = 1
MOST = 2**40  # samples of one client: more are none


@dataclass(frozen=True)
class RunModel:
    """What a run's models are, and whose: written when it begins, and all that opening it reads."""

    spec: ModelSpec
    columns: Mapping[str, int]  # how many numbers of a row belong to each tensor, in their order
    seed: int
    names: tuple[str, ...]  # of the clients
    samples: tuple[int, ...]  # that each trains on
    moves_at: int = 0  # the round of a drift; 0: there is none
    samples_after: tuple[int, ...] = ()  # that each trains on after it
    pattern: str = "sudden"  # of the drift
    span: int = 1  # its rounds
    arrives: tuple[int, ...] = ()  # the round from which on each is there; (): always
    public: bool = False  # whether the server holds samples of its own
    python: Mapping[str, Any] | None = None  # of a run without an experiment file: what was given

    def save(self, folder: Path, layout: Layout) -> None:
        """Write it into a run's folder, unless the same is there."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        plain = {"format": FORMAT, **values, "spec": self.spec.plain()}
        lines = (f" {json.dumps(key)}: {json.dumps(value)}" for key, value in plain.items())
        data = ("{\n" + ",\n".join(lines) + "\n}\n").encode()
        file = folder / FILE
        if not file.is_file() or read_bytes(file) != data:
            storage.replace_file(file, data)
        if not self.spec.network and not (folder / INITIAL).exists():
            storage.replace_file(folder / INITIAL, to_bytes({"row": layout.initial}))

    @classmethod
    def load(cls, folder: Path) -> RunModel | None:
        """What a run's folder says; None for one that an earlier version wrote."""
        file = folder / FILE
        if not file.exists():
            return None
        try:
            plain = json.loads(read_bytes(file))
            plain["spec"] = ModelSpec.from_plain(plain["spec"])
            known = {f.name: plain[f.name] for f in fields(cls) if f.name in plain}
            for name in ("names", "samples", "samples_after", "arrives"):
                known[name] = tuple(known.get(name, ()))
            if any(not 0 <= n < MOST for n in (*known["samples"], *known["samples_after"])):
                raise ValueError("nobody has so many samples")
            if len(known["samples"]) != len(known["names"]):
                raise ValueError("it names other clients than it counts samples of")
            return cls(**known)
        except (OSError, *DAMAGE) as cause:
            raise damaged(file, cause) from cause

    def layout(
        self, folder: Path, model: Given | None = None, *, seed: int, allow_code: bool = False
    ) -> Layout:
        """The run's network as a row, with the initial numbers it was started from."""
        try:
            net = self.spec.module(model, seed=seed, allow_code=allow_code)
        except (RuntimeError, *DAMAGE) as cause:
            if isinstance(cause, CoterieError):
                raise
            raise damaged(folder / FILE, cause) from cause
        built = {
            "network": self.spec.network,
            "options": self.spec.options,
            "head": self.spec.head,
        }
        layout = Layout(net, self.spec.head, built)
        self.check(layout, folder)
        if (folder / INITIAL).exists():
            layout.load(initial_row(folder), net)
            layout = Layout(net, self.spec.head, built)
        return layout

    def check(self, layout: Layout, folder: Path) -> None:
        """Refuse another network than the run's."""
        columns = {name: s.stop - s.start for name, s in layout.slices.items()}
        if list(columns.items()) != list(self.columns.items()):
            odd = [n for n in {**self.columns, **columns} if columns.get(n) != self.columns.get(n)]
            raise CheckpointError(
                f"this is not the network that {folder} was trained with",
                code="K016",
                where=f"its tensors: {', '.join((odd or [*columns])[:8])}",
                fix="give the network of the run, with the same layers and the same frozen ones",
            )


def initial_row(folder: Path) -> Tensor:
    """(P,) the numbers that a run without a seed for them was started from."""
    with understanding(folder / INITIAL):
        try:
            return from_bytes(read_bytes(folder / INITIAL))["row"]
        except SafetensorError as cause:
            raise ValueError(str(cause)) from cause


def damaged(file: Path, cause: BaseException) -> CheckpointError:
    """The error of a model.json that does not say what a model is."""
    return CheckpointError(
        f"{file} is damaged",
        code="K002",
        why=reason(cause),
        fix="put the file back; `coterie resume` writes it again where the data are",
    )
