"""A small labelled set in which every image tells which sample it is."""

from __future__ import annotations

import torch

from coterie.data.dataset import Data


def labelled(
    n: int = 3000,
    classes: int = 10,
    test: int = 600,
    owners: int = 60,
    shape: tuple[int, ...] = (1, 4, 4),
) -> Data:
    """The first number of sample i is i, that of test sample i is -1 - i; labels are uneven."""
    rng = torch.Generator().manual_seed(7)

    def images(count: int, first: torch.Tensor) -> torch.Tensor:
        x = torch.rand(count, *shape, generator=rng)
        x.view(count, -1)[:, 0] = first.float()
        return x

    def labels(count: int) -> torch.Tensor:
        weights = torch.linspace(1, 2, classes)
        rest = torch.multinomial(weights, count - classes, replacement=True, generator=rng)
        return torch.cat([torch.arange(classes), rest])

    return Data(
        "labelled",
        images(n, torch.arange(n)),
        labels(n),
        tuple(f"class {k}" for k in range(classes)),
        images(test, -1 - torch.arange(test)) if test else None,
        labels(test) if test else None,
        torch.randint(owners, (n,), generator=rng) * 3,  # ids with gaps
        torch.randint(owners, (test,), generator=rng) * 3 if test else None,
        peak=1.0,
    )
