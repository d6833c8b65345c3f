"""The ledger of a federation: what was asked, and what crossed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Asked:
    """One entry of the ledger: who was asked what, who answered, and what crossed."""

    round: int
    purpose: str
    task: str
    clients: Tensor  # (m,) asked
    down: Tensor  # (m,) bytes sent to each
    up: Tensor  # (m,) bytes that came back, 0 for those who did not answer
    rejected: Mapping[int, str] = field(default_factory=dict)  # client -> why its reply was dropped
    seconds: float = 0.0
    alone: Mapping[int, str] = field(default_factory=dict)  # client -> `Reply.alone`
    samples: int = 0  # seen in local training by those who answered
    mended: tuple[str, ...] = ()  # what broke on the way to the answers, and was put right
