"""A contestant: a process that waits to be told "do a round" and answers the seconds it took."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module, metadata
from typing import Any, Protocol

import numpy as np

from bench.workloads import WORKLOADS, Array


class Contestant(Protocol):
    """A method on one workload; what it has learnt lives on from round to round."""

    def round(self, epochs: int) -> None:
        """Train the clients of the round for so many epochs, and average."""

    def weights(self) -> list[Array]:
        """The models, in the order and shapes of `Workload.initial`."""


class Channel:
    """Lines of JSON to and from the process that measures.

    It takes standard output for itself: whatever a library prints goes to standard error.
    """

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def say(self, **message: Any) -> None:
        """Send one message."""
        print(json.dumps(message), file=self._out, flush=True)

    def turns(self, weights: Callable[[], list[Array]], **about: Any) -> Iterator[int]:
        """The epochs of one round after another; a round is over when the next is asked for."""
        self.say(pid=os.getpid(), **about)
        for line in sys.stdin:
            asked = json.loads(line)
            began = time.perf_counter()
            yield asked["epochs"]
            seconds = time.perf_counter() - began
            if asked["weights"]:
                np.savez(asked["weights"], *weights())
            self.say(seconds=seconds)

    def serve(self, contestant: Contestant, **about: Any) -> None:
        """Do rounds until nobody asks any more."""
        for epochs in self.turns(contestant.weights, **about):
            contestant.round(epochs)


def versions(*packages: str) -> str:
    """The installed versions, as text."""
    return ", ".join(f"{name} {metadata.version(name)}" for name in packages)


if __name__ == "__main__":  # python -m bench.contestant <module> <workload> [options]
    module, name, *options = sys.argv[1:]
    import_module(module).main(WORKLOADS[name], Channel(), *options)
