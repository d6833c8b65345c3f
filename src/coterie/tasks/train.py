"""The task that nearly every method asks for: train on your own data, and send what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from coterie.core.answers import LARGEST_LOSS, Form
from coterie.core.bounds import dataclass
from coterie.core.types import AnswerForm, Client, Known, Layout, Release, Reply, Sent, Task
from coterie.tasks.halves import in_halves, trained_halves
from coterie.tasks.solver import Solver, trained
from coterie.tasks.steps import SteppedTask, Stepwise, logits


@dataclass(frozen=True)
class Training(Task):
    """A task that trains as its solver says, and answers the trained model."""

    solver: Solver = Solver()  # how it trains

    @property
    def trains(self) -> Solver:
        """The recipe."""
        return self.solver

    def answer_form(self, known: Known) -> AnswerForm:
        """The trained model."""
        return {"value": known.layout.form()}


@dataclass(frozen=True)
class Train(Training, SteppedTask):
    """Train on the client's own data, starting from the model it is sent.

    What may be sent beside the model: `anchor`, the point the proximal term pulls to (default: the
    model itself); `epochs`, this client's own number of epochs; `start`, where one that continues
    shall start this time.
    """

    train: str = "all"  # the columns that learn: all, head, body, or names of layers
    upload: str = "all"  # the columns that are sent back
    private: str = "none"  # the columns that never leave the client, which remembers its own
    continues: bool = False  # start from what this client trained last, not from what it is sent
    report: tuple[Literal["before", "loss", "steps", "halves"], ...] = ()  # sent along, all small

    @property
    def trainings(self) -> int:
        """One, and one on each half if these are asked for."""
        return 3 if "halves" in self.report else 1

    @property
    def download(self) -> str:
        """Everything the client does not hold itself."""
        return "none" if self.continues else f"~{self.private}"

    @property
    def shared(self) -> str:
        """The columns that are sent back: never a private one."""
        return self.upload if self.private == "none" else f"~{self.private}"

    def answer_form(self, known: Known) -> AnswerForm:
        """The columns shared, and a number for each report."""
        shared = known.layout.form(self.shared)
        if not self.report:
            return {"value": shared}
        epochs = int(known.sent["epochs"]) if "epochs" in known.sent else None
        most = self.solver.most_steps(known.samples, epochs)
        reports = {
            "before": Form(shared.dtype, (), 0, LARGEST_LOSS),
            "loss": Form(shared.dtype, (), 0, LARGEST_LOSS),
            "steps": Form("float32", (), 0, most, whole=True),
        }
        if "halves" in self.report:  # a network need not have a head otherwise
            reports["halves"] = in_halves(known.layout.form("head"))
        return {"value": shared} | {f"extra.{name}": reports[name] for name in self.report}

    def spends(self, known: Known) -> Sequence[Release] | None:
        """Every step of the training; a loss is hidden by nothing, and halves are not counted."""
        if not self.solver.privacy.on or {"before", "loss", "halves"} & set(self.report):
            return None
        epochs = int(known.sent["epochs"]) if "epochs" in known.sent else None
        return [self.solver.release(known.samples, epochs)]

    def stepwise(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Stepwise[Reply]:
        """Train, keep what is private, and send back the columns asked for."""
        start = sent.get("start", self.start(client, models, layout))
        extra: dict[str, Tensor] = {}
        if "before" in self.report:
            extra["before"] = F.cross_entropy((yield from logits(start, client.x)), client.y)
        w, taken = yield from trained(
            self.solver,
            client,
            start,
            rng,
            train=self.train,
            anchor=sent.get("anchor"),
            epochs=int(sent["epochs"]) if "epochs" in sent else None,
        )
        if "loss" in self.report:
            extra["loss"] = F.cross_entropy((yield from logits(w, client.x)), client.y)
        if "steps" in self.report:
            extra["steps"] = torch.tensor(float(taken))
        if "halves" in self.report:
            extra["halves"] = yield from trained_halves(
                self.solver, client, start, "head", layout, rng
            )
        keep = {}
        if self.private != "none":
            keep["private"] = w[layout.columns(self.private)].clone()
        if self.continues:
            keep["model"] = w
        return Reply(w[layout.columns(self.shared)], extra, keep)

    def start(self, client: Client, received: Tensor, layout: Layout) -> Tensor:
        """(P,) the row training starts from."""
        if self.continues:
            return client.memory.get("model", layout.initial)
        return own_row(client, received, self.private, layout)


def own_row(client: Client, received: Tensor, private: str, layout: Layout) -> Tensor:
    """(P,) what was received, and the client's own numbers elsewhere; at first the initial ones."""
    if private == "none":
        return received
    row = layout.initial.clone()
    row[layout.columns(f"~{private}")] = received
    if "private" in client.memory:
        row[layout.columns(private)] = client.memory["private"]
    return row
