"""FedEM: every client's data are a mixture of k distributions, each with a model of its own.

Marfoq, Neglia, Bellet, Kameni, Vidal: Federated Multi-Task Learning under a Mixture of
Distributions. NeurIPS 2021.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from coterie.core.answers import Form
from coterie.core.bounds import Count, Share, dataclass
from coterie.core.rng import stream
from coterie.core.types import (
    VALIDATION,
    AnswerForm,
    Client,
    Evaluation,
    Federation,
    Known,
    Layout,
    Receives,
    Replies,
    Reply,
    Sent,
    State,
    Task,
)
from coterie.tasks import Solver, SteppedTask, Stepwise, Training, trained
from coterie.tasks.score import Showing
from coterie.tasks.signature import ROUNDING, sample_losses
from coterie.tasks.steps import logits
from coterie.words.affinity import responsibilities
from coterie.words.mixing import average, mix
from coterie.words.server import ServerOptimiser

STEPS = 20  # of EM on the weights alone, with which a newcomer finds its mixture


def weights_of(client: Client, k: int) -> Tensor:
    """(k,) how much of each component is in a client's mixture: at first as much of each."""
    return client.memory.get("weights", torch.full((k,), 1 / k, dtype=torch.float64))


def posterior(losses: Tensor, pi: Tensor, client: Client, sent: Sent) -> Tensor:
    """(samples, k) to which component each sample belongs, by its losses and the mixture so far.

    Where it is known how common each label is in each component, `labels` (k, classes), a component
    has to explain more than that (FedRC).
    """
    if "labels" in sent:
        losses = losses + sent["labels"].double().log().T[client.y]
    return responsibilities(losses, pi)


@dataclass(frozen=True)
class TrainMixture(Training, SteppedTask):
    """A step of EM: to whom each sample belongs, then every component trained on its share.

    The weights of the mixture stay with the client. Which of them is the largest is told, so that
    the server can say who is where. With `labels` sent, also how many samples of each label every
    component has at this client: (k, classes).
    """

    receives: ClassVar[Receives] = "all"

    def answer_form(self, known: Known) -> AnswerForm:
        """The components, trained, and the number of one of them."""
        row, n = known.layout.form(), known.samples
        form = {
            "value": row._replace(shape=(known.k, *row.shape)),
            "extra.heaviest": Form("int64", (), 0, known.k - 1),
        }
        if "labels" in known.sent:
            shape, most = tuple(known.sent["labels"].shape), n * (1 + ROUNDING)
            form["extra.labels"] = Form(
                known.kind, shape, 0, most, total=(n * (1 - ROUNDING), most)
            )
        return form

    def stepwise(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Stepwise[Reply]:
        """E-step, weights, and the trainings on weighted samples."""
        losses = yield from sample_losses(models, client)
        q = posterior(losses, weights_of(client, len(models)), client, sent)
        pi, rows = q.mean(0), []
        for row, share in zip(models, q.T, strict=True):
            w, _ = yield from trained(self.solver, client, row, rng, weights=share.to(row.dtype))
            rows.append(w)
        extra = {"heaviest": pi.argmax()}
        if "labels" in sent:
            each = one_hot(client.y, sent["labels"].shape[1]).double()
            extra["labels"] = (q.T @ each).to(models.dtype)
        return Reply(torch.stack(rows), extra, {"weights": pi})


@dataclass(frozen=True)
class FindMixture(SteppedTask):
    """Find one's mixture of components that stay as they are: EM without training."""

    receives: ClassVar[Receives] = "all"

    def answer_form(self, known: Known) -> AnswerForm:
        """The number of the component of the largest weight."""
        return {"value": Form("int64", (), 0, known.k - 1)}

    def stepwise(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Stepwise[Reply]:
        """Every sample is read once for each component."""
        losses = yield from sample_losses(models, client)
        pi = weights_of(client, len(models))
        for _ in range(STEPS):
            pi = posterior(losses, pi, client, sent).mean(0)
        return Reply(pi.argmax(), keep={"weights": pi})


@dataclass(frozen=True)
class ScoreMixture(Showing):
    """Test the mixture: probabilities are the components' own, weighted by the client's weights."""

    receives: ClassVar[Receives] = "all"
    private: ClassVar[str] = "none"
    train: ClassVar[str] = "all"
    validation: bool = False  # also test on the samples that the client holds back

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of the rows of the reply."""
        return ("before", VALIDATION) if self.validation else ("before",)

    def validated(self) -> ScoreMixture:
        """The same test with the stage of validation."""
        return replace(self, validation=True)

    @property
    def held(self) -> Task:
        """The component of the largest weight: a mixture itself is no row."""
        return Heaviest()

    def said(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Stepwise[list[tuple[Tensor, Tensor]]]:
        """log sum_c pi_c p_c(y | x), over all components."""
        tests, stages = [(client.x_test, client.y_test)], []
        if self.validation:
            x = client.x_val if len(client.y_val) else client.x[:0]
            tests.append((x, client.y_val))
        pi = weights_of(client, len(models))
        for x, y in tests:
            each = []
            for row, weight in zip(models, pi, strict=True):
                answer = yield from logits(row, x)
                each.append(answer.double().log_softmax(1) + weight.log())
            stages.append((torch.stack(each).logsumexp(0), y))
        return stages


@dataclass(frozen=True)
class Heaviest(Task):
    """The component of which there is most in the client's mixture."""

    receives: ClassVar[Receives] = "all"

    def answer_form(self, known: Known) -> AnswerForm:
        """One model."""
        return {"value": known.layout.form()}

    def __call__(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Reply:
        """Look it up."""
        return Reply(models[weights_of(client, len(models)).argmax()])


@dataclass(frozen=True)
class FedEM:
    """k components for everybody; each client learns, sample by sample, how much it has of each.

    `state.models` are the components. A client counts to the one of the largest weight; what it
    predicts with is the mixture.
    """

    solver: Solver = Solver(lr=0.03, epochs=1, batch=128)
    fraction: Share = 1.0  # of clients drawn in a round
    clusters: Count = 3  # M, components
    server: ServerOptimiser = field(default=ServerOptimiser(), kw_only=True)  # of the average

    refuses: ClassVar[Mapping[str, str]] = {
        "merge": "every client counts for every component, by its samples"
    }
    kind = "clustered"
    score: ClassVar[Evaluation] = ScoreMixture()  # every client tests its mixture

    def init(self, fed: Federation) -> State:
        """The initial model and others drawn like it, of which everybody has as much."""
        others = range(1, self.clusters)
        fresh = [fed.layout.fresh(stream(fed.seed, "start", i)) for i in others]
        nobody = State.nobody(torch.stack([fed.layout.initial, *fresh]), len(fed.clients))
        return nobody.give_unplaced(0)

    def round(self, state: State, fed: Federation) -> State:
        """Every component becomes the average of what the drawn clients made of it."""
        state = self.place(state, fed)
        cohort = fed.sample(self.fraction)
        w = fed.ask(cohort, TrainMixture(self.solver), state, **self.sent(state))
        return self.server.advance(state, self.merged(state, w), fed.layout) if w else state

    def merged(self, state: State, w: Replies) -> State:
        """Averages by samples, for each component."""
        W = average(w.counted())
        rows = [mix(W, w.values[:, c]) for c in range(state.k)]
        return state.hold(torch.cat(rows)).reassign(w.clients, w.extra["heaviest"])

    def sent(self, state: State) -> Mapping[str, Tensor]:
        """What is sent beside the components: nothing."""
        return {}

    def place(self, state: State, fed: Federation) -> State:
        """A newcomer finds its mixture of the components as they are."""
        if not len(state.unplaced):
            return state
        c = fed.ask(state.unplaced, FindMixture(), state, **self.sent(state))
        return state.reassign(c.clients, c.values) if c else state
