"""Nothing is left out silently: whose answer was not used, and who counts for less than it says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from coterie.core.errors import CoterieError
from coterie.core.events import Listener
from coterie.core.types import Asked, Engine, State


def tell_rejected(asked: Iterable[Asked], names: Sequence[str], say: Listener) -> None:
    """Tell whose answer to which task was not used, and why."""
    for entry in asked:
        at = entry.round + (entry.purpose == "train")  # a test is of the round that ended
        for i, why in entry.rejected.items():
            what = {"event": "rejected", "round": at, "client": names[i], "task": entry.task}
            say({**what, "why": why})


@contextmanager
def telling(fed: Engine, say: Listener) -> Iterator[None]:
    """What was rejected is told also where the run ends, which may be why it does."""
    try:
        yield
    except CoterieError:
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
    told: dict[int, int],
) -> None:
    """Tell who counts for less than it declares; `told` has of whom that was said, and where."""
    for i, (declared, counted) in shares.items():
        cluster = int(state.assign[i])
        if told.get(i) == cluster:
            continue
        told[i] = cluster
        what = {"event": "capped", "round": state.round, "client": names[i], "cluster": cluster}
        say({**what, "declared": round(declared, 4), "counted": round(counted, 4)})
