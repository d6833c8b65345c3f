"""Nothing is left out silently: whose answer was not used, and who counts for less than it says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor

from coterie.core.errors import CoterieError, NotFiniteError
from coterie.core.events import Listener
from coterie.core.model_kind import ModelKind
from coterie.core.types import Asked, Engine, State


@dataclass
class Told:
    """Of whom something was said already that is said once."""

    untested: set[int] = field(default_factory=set)
    alone: set[int] = field(default_factory=set)
    held_back: dict[int, int] = field(default_factory=dict)  # and in which cluster
    unplaced: list[int] = field(default_factory=list)
    suspects: set[int] = field(default_factory=set)
    lacking: set[int] = field(default_factory=set)  # clusters of too few answers
    dormant: set[int] = field(default_factory=set)  # clusters


def tell_rejected(asked: Iterable[Asked], names: Sequence[str], say: Listener) -> None:
    """Tell whose answer to which task was not used, and why; and what broke and was mended."""
    for entry in asked:
        for text in entry.mended:
            at = {"round": round_of(entry), "task": entry.task}
            say({"event": "replaced", **at, "text": text})
        for i, why in entry.rejected.items():
            at = {"round": round_of(entry), "client": names[i], "task": entry.task}
            say({"event": "rejected", **at, "why": why})


def tell_asked(asked: Sequence[Asked], names: Sequence[str], say: Listener, told: Told) -> None:
    """Tell what is out of the ordinary in what was asked."""
    tell_rejected(asked, names, say)
    tell_alone(asked, names, say, told)


def tell_alone(asked: Iterable[Asked], names: Sequence[str], say: Listener, told: Told) -> None:
    """Tell whom an engine had to serve one by one, which is slower, and why."""
    for entry in asked:
        reasons: dict[str, list[int]] = {}
        for i, why in entry.alone.items():
            if i not in told.alone:
                reasons.setdefault(why, []).append(i)
        for why, who in reasons.items():
            told.alone.update(who)
            at = {"round": round_of(entry), "clients": [names[i] for i in who]}
            say({"event": "alone", **at, "task": entry.task, "why": why})


def round_of(entry: Asked) -> int:
    """The round that an entry belongs to: a test is of the round that ended."""
    return entry.round + (entry.purpose == "train")


@contextmanager
def telling(fed: Engine, say: Listener) -> Iterator[None]:
    """What was rejected is told also where the run ends, which may be why it does."""
    try:
        yield
    except CoterieError as error:
        if isinstance(error, NotFiniteError):
            error.where = error.where or fed.loudest()
        tell_rejected(fed.ledger, fed.names, say)
        raise


def telling_why(states: Iterator[State], fed: Engine, say: Listener) -> Iterator[State]:
    """The states, with everything told of a round that does not come to its end."""
    while True:
        with telling(fed, say):
            state = next(states, None)
        if state is None:
            return
        yield state


def tell_held_back(
    shares: Mapping[int, tuple[float, float]],
    state: State,
    names: Sequence[str],
    say: Listener,
    told: Told,
) -> None:
    """Tell who counts for less than it declares."""
    for i, (declared, counted) in shares.items():
        cluster = int(state.assign[i])
        if told.held_back.get(i) == cluster:
            continue
        told.held_back[i] = cluster
        what = {"event": "capped", "round": state.round, "client": names[i], "cluster": cluster}
        say({**what, "declared": round(declared, 4), "counted": round(counted, 4)})


def tell_dormant(
    kind: ModelKind, previous: Tensor | None, state: State, say: Listener, told: Told
) -> None:
    """Tell which clusters have lost all their members, and which of those have some again.

    Their models are still there, as they were, for whoever comes back.
    """
    if kind != "clustered":
        return
    held = set(state.assign[state.assign >= 0].tolist())
    before = set() if previous is None else set(previous[previous >= 0].tolist())
    lost = {c for c in before - held if c < len(state.models)} - told.dormant
    back = told.dormant & held
    told.dormant = (told.dormant | lost) - back
    for event, clusters in (("dormant", lost), ("revived", back)):
        if clusters:
            say({"event": event, "round": state.round, "clusters": sorted(clusters)})


def tell_unplaced(who: Tensor, round: int, names: Sequence[str], say: Listener, told: Told) -> None:
    """Tell who has no model yet, if they are others than those who were told of last."""
    waiting = who.tolist()
    if waiting and waiting != told.unplaced:
        told.unplaced = waiting
        say({"event": "unplaced", "round": round, "clients": [names[i] for i in waiting]})
