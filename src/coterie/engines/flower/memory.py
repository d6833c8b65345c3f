"""What a client keeps for itself: on its own disk, by experiment, round and question.

A version is written whole or not at all, and again to the same bytes: delivery is at least once.
The versions of the last rounds stay, so that a round that is done again after a crash of the
server starts from what was kept before it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from coterie.core import storage

Version = tuple[int, int]  # round and which `ask` of the round


class Memory:
    """The private memory of one client in one experiment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def versions(self) -> list[Version]:
        """What is there, oldest first."""
        found = (re.fullmatch(r"(-?\d+)\.(\d+)\.safetensors", p.name) for p in self._files())
        return sorted((int(m[1]), int(m[2])) for m in found if m)

    def before(
        self, round: int, call: int, *, train: bool = True, void: Collection[int] = ()
    ) -> dict[str, Tensor]:
        """What was kept before this question: at the end of the rounds before, and in this round.

        A test belongs to no round of training: it sees what was kept at the end of the one before.
        """
        usable = [
            v
            for v in self.versions()
            if (v[0] < round and v[0] not in void) or (train and v[0] == round and v[1] < call)
        ]
        return from_bytes(self._file(usable[-1]).read_bytes()) if usable else {}

    def keep(
        self,
        round: int,
        call: int,
        kept: Mapping[str, Tensor],
        *,
        floor: int,
        void: Collection[int] = (),
    ) -> None:
        """Write what is kept after this question; forget what no resumed server can ask for."""
        storage.make_folder(self.folder)
        data = to_bytes({name: t.detach().contiguous() for name, t in kept.items()})
        storage.replace_file(self._file((round, call)), data)
        for v in self.versions():
            if v > (round, call):  # of an earlier attempt at this round or a later one
                self._file(v).unlink(missing_ok=True)
        old = [v for v in self.versions() if v[0] <= floor and v[0] not in void]
        for v in old[:-1]:
            self._file(v).unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        return list(self.folder.glob("*.safetensors")) if self.folder.exists() else []

    def _file(self, version: Version) -> Path:
        return self.folder / f"{version[0]}.{version[1]}.safetensors"
