"""Randomness with an address: nothing to save, no order to respect."""

from __future__ import annotations

import hashlib

import numpy as np
import torch


def address(seed: int, *path: object) -> int:
    """The 63-bit number that belongs to an address, the same on every machine.

    >>> address(0, "batches", 3, "client 7") == address(0, "batches", 3, "client 7")
    True
    >>> address(0, "batches", 3) == address(0, "batches", 4)
    False
    """
    digest = hashlib.sha256(repr((int(seed), *path)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def stream(seed: int, *path: object) -> torch.Generator:
    """A torch generator that depends only on its address."""
    return torch.Generator().manual_seed(address(seed, *path))


def numpy_stream(seed: int, *path: object) -> np.random.Generator:
    """The same for numpy, for the parts that draw Dirichlet or multinomial numbers."""
    return np.random.default_rng(address(seed, *path))
