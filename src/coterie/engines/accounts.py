"""The privacy accounts of clients: what each has spent, kept with what it remembers.

An account is in a client's private memory, so that checkpoints have it and a resumed run goes on
with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping

import torch
from torch import Tensor

from coterie.core.errors import ConfigError
from coterie.engines.question import Question
from coterie.tasks.accounting import epsilon, spent

ACCOUNT = "spent"  # its place in a client's memory


def expect_protected(question: Question) -> None:
    """Refuse a question whose answers no noise would hide anybody in, before it is asked."""
    if len(question.cohort) and question.spends(0) is None:
        task = type(question.task).__name__
        raise ConfigError(
            f"{task} sends what no noise covers",
            code="C073",
            where=f"{question.when}: {question.task}",
            why="with [privacy] everything that leaves a client is under noise, and accounted for",
            fix="choose a method that `coterie help C073` names; a task of your own says what it "
            "spends in `spends`",
        )


def charge(
    memories: MutableMapping[int, dict[str, Tensor]], question: Question, places: Iterable[int]
) -> None:
    """Enter into the accounts of those who answered what their answers spent."""
    for j in places:
        i = int(question.cohort[j])
        kept = memories.get(i, {})
        now = spent(question.spends(j) or ())
        memories[i] = {**kept, ACCOUNT: now + kept.get(ACCOUNT, torch.zeros_like(now))}


def epsilons(memories: Mapping[int, Mapping[str, Tensor]], delta: float) -> dict[int, float]:
    """The epsilon of each client that has spent anything."""
    return {
        i: epsilon(kept[ACCOUNT], delta) for i, kept in sorted(memories.items()) if ACCOUNT in kept
    }
