"""Whom one can trust: attackers of a simulation, suspicious clients, and too few answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from coterie.attacks.attackers import Attackers
from coterie.core.events import Listener
from coterie.core.loop import Scores
from coterie.core.types import Asked, Engine, State
from coterie.runs.history import Row
from coterie.runs.measure import of_all
from coterie.studies.run.telling import Told, tell_asked, tell_held_back, tell_unplaced
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


def tell_clients(
    fed: Engine, asked: Sequence[Asked], state: State, waiting: Tensor, say: Listener, told: Told
) -> None:
    """Tell what is out of the ordinary about clients after a round; some wait for a model."""
    tell_asked(asked, fed.names, say, told)
    tell_held_back(fed.held_back(asked, state), state, fed.names, say, told)
    tell_unplaced(waiting, state.round, fed.names, say, told)
    tell_trust(state, fed.names, say, told)


def attacked(them: Attackers, names: Sequence[str]) -> dict[str, Any]:
    """What a summary says of an attack."""
    who = [names[i] for i in them.who]
    return {"attack": {"kind": them.attack.kind, "clients": who}} if who else {}


def doubted(state: State, names: Sequence[str]) -> dict[str, Any]:
    """What a summary says of suspicious clients, and of clusters of too few answers."""
    out: dict[str, Any] = {}
    if SEEN in state.memory:
        out["suspects"] = [{"client": names[i], "why": why(s)} for i, s in suspects(state).items()]
    if LACKING in state.memory:
        out["unmerged"] = len(state.memory[LACKING])
    return out
