"""What a method remembers between rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from coterie.core.moments import without_moments
from coterie.core.units import count


@dataclass(frozen=True)
class State:
    """Everything a method remembers between rounds. Client i holds `models[assign[i]]`.

    >>> state = State.shared(torch.zeros(3), n=2)
    >>> state.k, state.assign.tolist(), state.unplaced.tolist()
    (1, [0, 0], [])
    """

    models: Tensor  # (k, P)
    assign: Tensor  # (n,)  -1: not placed yet
    round: int = 0
    memory: Mapping[str, Tensor] = field(default_factory=dict)  # what else the paper keeps

    def __post_init__(self) -> None:
        if self.models.ndim != 2:
            raise ValueError(f"models must be (k, P), got {tuple(self.models.shape)}")
        if self.assign.ndim != 1 or self.assign.dtype != torch.long:
            raise ValueError(f"assign must be (n,) long, got {tuple(self.assign.shape)}")
        if len(self.assign) and not -1 <= int(self.assign.min()) <= int(self.assign.max()) < self.k:
            raise ValueError(f"assign must lie in [-1, {self.k}), got {self.assign.tolist()}")

    def __repr__(self) -> str:
        numbers = f"{count(self.k, 'model')} of {self.models.shape[1]:,} numbers"
        return f"State(round {self.round}: {numbers}, {count(len(self.assign), 'client')})"

    @classmethod
    def shared(cls, row: Tensor, n: int) -> State:
        """One model for everybody."""
        return cls(row[None].clone(), torch.zeros(n, dtype=torch.long))

    @classmethod
    def personal(cls, row: Tensor, n: int) -> State:
        """A model of its own for each client, all alike at first."""
        return cls(row.repeat(n, 1), torch.arange(n))

    @classmethod
    def nobody(cls, models: Tensor, n: int) -> State:
        """Models that nobody holds yet: one row (P,), or several (k, P).

        >>> State.nobody(torch.zeros(3), n=2).assign.tolist()
        [-1, -1]
        """
        return cls(torch.atleast_2d(models), torch.full((n,), -1))

    @property
    def k(self) -> int:
        """How many models there are."""
        return len(self.models)

    @property
    def placed(self) -> Tensor:
        """The clients that hold a model."""
        return (self.assign >= 0).nonzero().flatten()

    @property
    def unplaced(self) -> Tensor:
        """The clients that hold none yet: newcomers, and whoever missed the call."""
        return (self.assign < 0).nonzero().flatten()

    def of(self, clients: Tensor) -> Tensor:
        """The models these clients hold, one row each: (m, P)."""
        return self.models[self.assign[clients]]

    def hold(self, models: Tensor | None = None, **memory: Tensor) -> State:
        """The same state with other models, and with these memories added."""
        models = self.models if models is None else models
        return replace(self, models=models, memory={**self.memory, **memory})

    def reassign(self, clients: Tensor, labels: Tensor) -> State:
        """The same state with these clients moved to these models."""
        return replace(self, assign=self.assign.index_copy(0, clients, labels))

    def give_unplaced(self, model: int = 0) -> State:
        """The same state in which everybody who held none holds this model."""
        return self.reassign(self.unplaced, torch.full_like(self.unplaced, model))

    def regroup(self, clients: Tensor, labels: Tensor, models: Tensor) -> State:
        """A new population: these clients get these labels, everybody else is unplaced.

        `models` has a row for each label, (k, P), or is the row that all of them start from, (P,).
        Moments of the models before belong to nobody any more.
        """
        if models.ndim == 1:
            models = models.repeat(int(labels.max()) + 1, 1)
        memory = without_moments(self.memory)
        nobody = replace(
            self, models=models, assign=torch.full_like(self.assign, -1), memory=memory
        )
        return nobody.reassign(clients, labels)
