"""What is known of each method without loading it: the rows of the table, by family."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """What is known of a method without loading it."""

    name: str
    path: str  # module of this package : class
    paper: str
    family: str  # alone | global | clustered | personalised
    summary: str
    uploads: str = "weights every round"  # what leaves a client
    public: int = 0  # samples per class that the server must hold, unless the user says otherwise
    noise: str = ""  # what noise hides of a sample with [privacy]; empty: it cannot hide all

    @property
    def cls(self) -> str:
        """The name of its class."""
        return self.path.split(":")[1]
