"""A client: its data, its name, and what it remembers for itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

import torch
from torch import Tensor

NONE = torch.empty(0), torch.empty(0, dtype=torch.long)  # samples and labels of who has none


@dataclass(frozen=True)
class Client:
    """One client's own data. Nothing here is visible to a server but by a task's reply."""

    x: Tensor  # (n_i, ...) float
    y: Tensor  # (n_i,) long
    x_test: Tensor
    y_test: Tensor
    name: str = ""  # addresses its randomness, so renumbering clients changes nothing
    memory: Mapping[str, Tensor] = field(
        default_factory=dict
    )  # private: written by tasks, kept by the engine
    x_val: Tensor = NONE[0]  # validation: neither trained on nor tested on
    y_val: Tensor = NONE[1]

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        shape = tuple(self.x.shape[1:])
        held = f" · validation {len(self.y_val):,}" if len(self.y_val) else ""
        return (
            f"Client({self.name!r}: train {len(self):,}{held} · test {len(self.y_test):,} "
            f"of {shape})"
        )


class Clients(Sequence[Client]):
    """Clients in a row, of whom each is made when somebody asks for it."""

    @abstractmethod
    def client(self, i: int) -> Client:
        """The client of a place, counted from 0."""

    @overload
    def __getitem__(self, i: int) -> Client: ...
    @overload
    def __getitem__(self, i: slice) -> list[Client]: ...
    def __getitem__(self, i: int | slice) -> Client | list[Client]:
        if isinstance(i, slice):
            return [self[j] for j in range(len(self))[i]]
        return self.client(range(len(self))[i])  # -1 and one too many, as in a list
