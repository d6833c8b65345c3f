"""When a client should use a tuned model: `python -m bench.tuning --seeds 33-34`.

FedAvg's model for small clients of many kinds, as it is and with the last layer tuned on a client's
own samples for one epoch or five, and what several rules lose that choose from those samples alone.
Points below the best of five epochs for everybody, one and none, over cases; kin tunes for five
where "not clearly fewer are right, nor does it clearly lose more", and else for one.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

import coterie as ct
from bench.kin import loaded
from coterie import engines
from coterie.core.client import Client
from coterie.core.errors import DivergedError
from coterie.core.loop import evaluate, run
from coterie.studies.run.training import build_layout
from coterie.tasks import Score, VerifiedScore
from coterie.tasks.halves import folds
from coterie.tasks.solver import Solver, trained
from coterie.tasks.steps import Stepwise, logits
from coterie.tasks.verify import FOLDS, losses

CLIENTS, TEST = 20, 0.2
SIZES = {"digits": (30, 70), "fashion-mnist": (30, 100), "mnist": (30, 100)}
ALIKE = ("iid", "iid+quantity", "noise")
APART = ("dirichlet:0.1", "dirichlet:0.5", "label-skew:0.2", "label-groups:0-1/2-3/4-6/7-9")
RATES = (0.05, 0.15)


class Case(NamedTuple):
    """A federation and how it trains."""

    data: str
    kind: str
    each: int
    rate: float
    seed: int
    rounds: int


class Seen(NamedTuple):
    """What tuning did to a client's samples that it did not see, and is worth on its test."""

    fixed: int
    broken: int
    saved: float  # loss, over all of them
    error: float  # of that
    before: float = 0.0  # accuracy
    little: float = 0.0  # after one epoch
    after: float = 0.0

    @property
    def more(self) -> int:
        """Samples that are right by it."""
        return self.fixed - self.broken


RULES: dict[str, Callable[[Seen], bool]] = {
    "more are right, or as many and it loses less": lambda s: (
        (s.fixed - s.broken, s.saved) > (0, 0)
    ),
    "clearly more are right": lambda s: s.more > (s.fixed + s.broken) ** 0.5,
    "not clearly fewer are right": lambda s: s.more >= -((s.fixed + s.broken) ** 0.5),
    "it loses less": lambda s: s.saved > 0,
    "it does not clearly lose more": lambda s: s.saved > -s.error,
    "it does not lose more by two errors": lambda s: s.saved > -2 * s.error,
    "not clearly fewer are right, nor does it clearly lose more": lambda s: (
        s.more >= -((s.fixed + s.broken) ** 0.5) and s.saved > -s.error
    ),
    "everybody": lambda s: True,
    "nobody": lambda s: False,
}


@dataclass(frozen=True)
class Watched(VerifiedScore):
    """Everybody tunes, and what the check would go by is written down."""

    seen: Any = None

    def helps(
        self, row: Tensor, client: Client, adapt: Solver, rng: torch.Generator
    ) -> Stepwise[bool]:
        """Yes."""
        fixed, broken, saved = 0, 0, [torch.zeros(1)]
        for some, others in folds(client, FOLDS) if len(client) > 1 else ():
            tuned, _ = yield from trained(adapt, some, row, rng, train=self.train)
            before = yield from logits(row, others.x)
            after = yield from logits(tuned, others.x)
            was, now = (said.argmax(1) == others.y for said in (before, after))
            fixed, broken = fixed + int((now & ~was).sum()), broken + int((was & ~now).sum())
            saved.append(losses(others.y, before) - losses(others.y, after))
        d = torch.cat(saved[1:] or saved)
        error = float(d.std(correction=0)) * len(d) ** 0.5
        self.seen[client.name] = Seen(fixed, broken, float(d.sum()), error)
        return True


def clients(case: Case) -> list[Seen]:
    """FedAvg for some rounds; then everybody's numbers."""
    needs = 1.5 if case.kind.startswith("label-groups") else 1.0
    wanted = round(needs * CLIENTS * case.each)
    small = case.data == "digits"
    data = loaded(case.data, 0 if small else round(wanted / (1 - TEST)))
    share = max(TEST, 1 - wanted / len(data.y)) if small else TEST
    people = ct.partition(data, case.kind, CLIENTS, case.seed, test="own", test_share=share)
    net = "dnn2" if small else "lenet5"
    layout = build_layout(net, people.shape, people.classes, seed=case.seed)
    solver, seen = ct.Solver(lr=case.rate, epochs=2, batch=10), dict[str, Seen]()

    class Method(ct.FedAvg):
        """FedAvg, tested so."""

        score = Watched(replace(solver, epochs=5), train="head", seen=seen)

    class Little(ct.FedAvg):
        """The same, tuned for one epoch."""

        score = Score(replace(solver, epochs=1), train="head")

    method = Method(solver)
    with engines.build("compiled", people, layout, case.seed) as fed:  # type: ignore[attr-defined]
        state = list(run(method, fed, case.rounds))[-1]
        before, after = (100 * evaluate(method, state, fed).accuracy).tolist()
        _, little = (100 * evaluate(Little(solver), state, fed).accuracy).tolist()
    return [
        seen[client.name]._replace(before=before[i], little=little[i], after=after[i])
        for i, client in enumerate(people)
    ]


def lost(rule: Callable[[Seen], bool], people: list[Seen], little: bool) -> float:
    """Points below the best of all; who is refused tunes a little, or not at all."""
    best = max(statistics.mean(p[k] for p in people) for k in (-3, -2, -1))
    used = (p.after if rule(p) else p.little if little else p.before for p in people)
    return best - statistics.mean(used)


def cases(seeds: range, rounds: int) -> Iterator[Case]:
    """All of them."""
    for seed, (data, sizes) in product(seeds, SIZES.items()):
        for each, kind, rate in product(sizes, ALIKE + APART, RATES):
            yield Case(data, kind, each, rate, seed, rounds)


def main() -> None:
    """Print a table."""
    options = argparse.ArgumentParser(prog="python -m bench.tuning", description=__doc__)
    options.add_argument("--seeds", default="33-34", help="first-last")
    options.add_argument("--rounds", type=int, default=20, help="before models are tuned")
    given = options.parse_args()
    first, last = map(int, given.seeds.split("-"))
    torch.set_num_threads(1)
    found = {}
    for case in cases(range(first, last + 1), given.rounds):
        with suppress(DivergedError):  # at this rate nobody learns
            found[case] = clients(case)
    for (name, rule), little in product(RULES.items(), (False, True)):
        print(f"five epochs if {name}; else {'one' if little else 'none'}")
        for what, kinds in (("alike", ALIKE), ("apart", APART)):
            those = (people for case, people in found.items() if case.kind in kinds)
            points = [lost(rule, people, little) for people in those]
            worse = sum(p > 1.5 for p in points)
            print(
                f"  {what}: mean {statistics.mean(points):.2f}, most {max(points):.1f}, "
                f"over 1.5 in {worse} of {len(points)}"
            )


if __name__ == "__main__":
    main()
