"""An attack, as one asks for it."""

from __future__ import annotations

from typing import Literal

from coterie.core.bounds import Count, Decay, NonNegative, Whole, dataclass

STRENGTH = {  # where none is given: a factor, a share of labels, a standard deviation
    "none": 0.0,
    "sign-flip": 10.0,
    "scaling": 10.0,
    "label-flip": 1.0,
    "free-rider": 0.0,
    "cluster-capture": 10.0,
}


@dataclass(frozen=True)
class Attack:
    """Some clients of a simulation are hostile, from a round on; of "none", nobody is.

    sign-flip and scaling send the update the other way or too far, label-flip trains on labels
    y -> C - 1 - y, a free-rider sends back what it was sent, and cluster-capture passes for a
    client of another planted group, to flip signs where it does not belong.
    """

    kind: Literal["none", "sign-flip", "scaling", "label-flip", "free-rider", "cluster-capture"] = (
        "none"  # what hostile clients do
    )
    share: Decay = 0.2  # of the clients, drawn by the seed; as many in each planted group
    clients: tuple[str, ...] = ()  # these by name, instead of a share
    strength: NonNegative | None = (
        None  # factor of an update (10), share of labels (1), or deviation of noise (0)
    )
    start: Count = 1  # the first round of it
    target: Whole = 0  # cluster-capture: the planted group that they pass for
    lies: bool = False  # cluster-capture: says of every other model that it fits (kin asks)

    @property
    def on(self) -> bool:
        """Whether anybody is hostile."""
        return self.kind != "none"

    @property
    def force(self) -> float:
        """The strength, or what is usual."""
        return STRENGTH[self.kind] if self.strength is None else self.strength

    @property
    def on_data(self) -> bool:
        """Whether it changes what clients train on."""
        return self.kind in ("label-flip", "cluster-capture")

    @property
    def on_replies(self) -> bool:
        """Whether it changes what clients send."""
        return self.kind in ("sign-flip", "scaling", "free-rider", "cluster-capture")
