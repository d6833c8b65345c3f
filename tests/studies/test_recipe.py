"""What a comparison says of how its methods train."""

from __future__ import annotations

import coterie as ct
from coterie.studies.comparison.cells import recipe


def test_local_work_says_what_is_not_plain_in_it() -> None:
    plain, server = ct.Solver(), ct.ServerOptimiser()
    assert list(recipe(plain, server)) == []
    solver = ct.Solver(optimiser=ct.AdamW(), clip=2, schedule=ct.Schedule("step", warmup=1))
    assert list(recipe(solver, ct.ServerOptimiser("yogi"))) == [
        "AdamW",
        "weight decay 0.01",
        "gradients clipped to 2",
        "step schedule after 1 round of warm-up",
        "server yogi at 0.1",
    ]
    nesterov = ct.Solver(optimiser=ct.SGD(momentum=0.5, nesterov=True))
    assert list(recipe(nesterov, server)) == ["Nesterov momentum 0.5"]
