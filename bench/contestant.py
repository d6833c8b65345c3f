"""A contestant: a process that waits to be told "do a round" and answers the seconds it took."""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module, metadata
from typing import Any, Protocol

import numpy as np

from bench.workloads import WORKLOADS, Array


class Contestant(Protocol):
    """FedAvg on one workload; the model lives on from round to round."""

    def round(self, epochs: int) -> None:
        """Train every client for so many epochs, and average."""

    def weights(self) -> list[Array]:
        """The global model, in the order and shapes of `Workload.initial`."""


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

    def serve(self, contestant: Contestant, **about: Any) -> None:
        """Do rounds until nobody asks any more."""
        self.say(pid=os.getpid(), **about)
        for line in sys.stdin:
            asked = json.loads(line)
            began = time.perf_counter()
            contestant.round(asked["epochs"])
            seconds = time.perf_counter() - began
            if asked["weights"]:
                np.savez(asked["weights"], *contestant.weights())
            self.say(seconds=seconds)


def versions(*packages: str) -> str:
    """The installed versions, as text."""
    return ", ".join(f"{name} {metadata.version(name)}" for name in packages)


if __name__ == "__main__":  # python -m bench.contestant <module> <workload> [options]
    module, name, *options = sys.argv[1:]
    import_module(module).main(WORKLOADS[name], Channel(), *options)
