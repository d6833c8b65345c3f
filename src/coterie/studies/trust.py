"""Whom one can trust: attackers of a simulation, suspicious clients, and too few answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from coterie.attacks.attackers import Attackers
from coterie.core.events import Listener
from coterie.core.loop import Scores
from coterie.core.types import State
from coterie.runs.history import Row
from coterie.runs.measure import of_all
from coterie.studies.telling import Told
from coterie.words.robust import LACKING
from coterie.words.suspicion import SEEN, suspects


def apart(state: State, scores: Scores, attackers: Sequence[int]) -> list[Row]:
    """The accuracies of the honest clients apart from the attackers', where there are any."""
    if not attackers:
        return []
    bad = torch.isin(scores.clients, torch.tensor(attackers))
    return [
        row
        for stage, accuracy in zip(scores.stages, scores.accuracy, strict=True)
        for name, them in (("honest", accuracy[~bad]), ("attackers", accuracy[bad]))
        if len(them)
        for row in of_all(state, stage, {f"accuracy_{name}": float(them.mean())})
    ]


def why(seen: tuple[int, int, int]) -> str:
    """What is suspicious about a client, in words.

    >>> why((9, 7, 0))
    "its updates point elsewhere than its cluster's in 7 of 9 rounds"
    """
    rounds, elsewhere, length = seen
    if elsewhere >= length:
        return f"its updates point elsewhere than its cluster's in {elsewhere} of {rounds} rounds"
    return f"its updates are not as long as its cluster's in {length} of {rounds} rounds"


def tell_attack(them: Attackers, names: Sequence[str], say: Listener) -> None:
    """Tell who is hostile, how, and from which round on."""
    if them.who:
        how = {"kind": them.attack.kind, "strength": them.attack.force, "start": them.attack.start}
        say({"event": "attack", "clients": [names[i] for i in them.who], **how})


def tell_trust(state: State, names: Sequence[str], say: Listener, told: Told) -> None:
    """Tell who has become suspicious, and which clusters could not be merged, each once."""
    for i, seen in suspects(state).items():
        if i not in told.suspects:
            told.suspects.add(i)
            at = {"round": state.round, "client": names[i], "cluster": int(state.assign[i])}
            say({"event": "suspect", **at, "why": why(seen)})
    lacking = state.memory.get(LACKING, torch.empty(0, 4, dtype=torch.long))
    for round, cluster, answers, needed in lacking[lacking[:, 0] == state.round - 1].tolist():
        if cluster not in told.lacking:
            told.lacking.add(cluster)
            at = {"round": round + 1, "cluster": cluster}
            say({"event": "unmerged", **at, "answers": answers, "needed": needed})


def trusted(state: State, names: Sequence[str], them: Attackers) -> Mapping[str, Any]:
    """What the summary of a run says of it."""
    out: dict[str, Any] = {}
    if them.who:
        out["attack"] = {"kind": them.attack.kind, "clients": [names[i] for i in them.who]}
    if SEEN in state.memory:
        out["suspects"] = [{"client": names[i], "why": why(s)} for i, s in suspects(state).items()]
    if LACKING in state.memory:
        out["unmerged"] = len(state.memory[LACKING])
    return out
