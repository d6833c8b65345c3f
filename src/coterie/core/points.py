"""Named points of a run: moments at which a test may look, or strike.

They are audit events of Python's own: `sys.addaudithook` hears "coterie.commit" with the round, in
whichever process it happens. Nobody listens in a run, and then they cost nothing.
"""

from __future__ import annotations

import sys

POINTS = {
    "round": "a round begins",
    "heard": "an answer of a client was taken in",
    "recorded": "what a round brought is in the records, and not yet in a checkpoint",
    "commit": "a checkpoint is written and has not its name yet",
    "committed": "a checkpoint has its name; older ones are still there",
    "introduced": "a client of a federation says who it is, and has not yet been heard",
    "welcomed": "a server has let a client in",
    "agreed": "the clients of a federation have agreed, and nothing is written yet",
    "asked": "a question is in a client's hands, and not yet begun",
    "kept": "a client has kept what is private of its answer, and not yet handed it over",
    "farewell": "a run is over, and its clients are about to hear so",
}


def reach(point: str, *about: object) -> None:
    """Say that a point is reached, and what of: a round, a name.

    >>> reach("commit", 3)
    """
    sys.audit(f"coterie.{point}", *about)
