"""SCAFFOLD: control variates that take out of a client's steps what is only its own.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: Stochastic Controlled Averaging for
Federated Learning. ICML 2020.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from coterie.core.bounds import Positive, Share, dataclass
from coterie.core.types import AnswerForm, Client, Federation, Known, Layout, Reply, Sent, State
from coterie.tasks import Score, Solver, SteppedTask, Stepwise, Training, sgd, trained
from coterie.words.mixing import advance, control, uniform


def variate(c_i: Tensor, c: Tensor, x: Tensor, y: Tensor, steps: int, lr: float) -> Tensor:
    """A client's next control variate (option II): the mean gradient on its way from x to y.

    >>> zero = torch.zeros(1)
    >>> variate(zero, zero, x=torch.tensor([1.0]), y=torch.tensor([0.0]), steps=2, lr=0.25).tolist()
    [2.0]
    """
    return c_i - c + (x - y) / (steps * lr)


@dataclass(frozen=True)
class Controlled(Training, SteppedTask):
    """SGD along g - c_i + c. The client keeps c_i and sends only by how much it changed.

    An answer may be lost on its way, and c would then miss that change for ever. So the client also
    keeps the variate from before its last answer, and goes back to it when the server says that
    fewer answers arrived (`answers`) than it gave.
    """

    def answer_form(self, known: Known) -> AnswerForm:
        """The trained model, and the change of the client's variate."""
        return {"value": known.layout.form(), "extra.change": known.layout.form("params")}

    def stepwise(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Stepwise[Reply]:
        """Train, and see what the way says about the client's own gradient."""
        c = sent["control"]  # (trainable,)
        given = client.memory.get("answers", torch.zeros((), dtype=torch.long))
        arrived = sent.get("answers", given)
        c_i = client.memory.get("control" if arrived >= given else "before", torch.zeros_like(c))
        y, steps = yield from trained(self.solver, client, models, rng, shift=c - c_i)
        p = layout.trainable
        new = variate(c_i, c, models[:p], y[:p], steps, self.solver.lr)
        keep = {"control": new, "before": c_i, "answers": torch.minimum(arrived, given) + 1}
        return Reply(y, {"change": new - c_i}, keep)


@dataclass(frozen=True)
class SCAFFOLD:
    """One model, averaged without weights, and a control variate c = mean c_i that travels with it.

    The solver's momentum is not used: the way from x to y tells the mean gradient only without it.
    """

    solver: Solver = Solver(lr=0.01, epochs=1, batch=32)
    fraction: Share = 0.2  # of clients drawn in a round
    server_lr: Positive = 1.0  # eta_g, of the server's step

    kind = "shared"
    score = Score()  # every client tests the one model
    refuses: ClassVar[Mapping[str, str]] = {
        "optimiser": "its variates are the mean gradient, which only the way of SGD tells",
        "clip": "its variates are the mean gradient, which shortened steps do not tell",
        "server": "its server takes a step of its own: scaffold.server_lr",
        "merge": "the clients' variates would still be summed as they come",
    }

    @property
    def plain(self) -> Solver:
        """The solver without momentum."""
        optimiser = replace(sgd(self.solver.optimiser, "SCAFFOLD"), momentum=0.0, nesterov=False)
        return replace(self.solver, optimiser=optimiser)

    def init(self, fed: Federation) -> State:
        """All variates are zero."""
        return State.shared(fed.layout.initial, len(fed.clients)).hold(
            control=torch.zeros_like(fed.layout.initial[: fed.layout.trainable]),
            answers=torch.zeros_like(fed.clients),  # that arrived from each client
            missed=torch.zeros_like(fed.clients, dtype=torch.bool),  # the last question, by whom
        )

    def round(self, state: State, fed: Federation) -> State:
        """x <- x + eta_g mean(y_i - x); c <- c + (1/N) sum (c_i+ - c_i)."""
        state = self.place(state, fed)
        cohort = fed.sample(self.fraction)
        c, answers, missed = (state.memory[name] for name in ("control", "answers", "missed"))
        send = {"control": c[None]} | ({"answers": answers[cohort]} if missed[cohort].any() else {})
        y = fed.ask(cohort, Controlled(self.plain), state, **send)
        state = state.hold(
            missed=missed.index_fill(0, cohort, True).index_fill(0, y.clients, False),
            answers=answers.index_add(0, y.clients, torch.ones_like(y.clients)),
        )
        if not y:
            return state
        mean = uniform(len(y))
        state = advance(state, y, mean, fed.layout, mean=mean, rate=self.server_lr)
        return state.hold(control=control(c, y.extra["change"], len(fed.clients)))

    def place(self, state: State, fed: Federation) -> State:
        """A newcomer takes the model; its variate is zero, so the mean of all becomes smaller."""
        state = state.give_unplaced(0)
        c, answers, missed = (state.memory[name] for name in ("control", "answers", "missed"))
        more = len(fed.clients) - len(answers)
        if not more:
            return state
        return state.hold(
            control=c * (len(answers) / len(fed.clients)),
            answers=torch.cat([answers, answers.new_zeros(more)]),
            missed=torch.cat([missed, missed.new_zeros(more)]),
        )
