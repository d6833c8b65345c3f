"""FedPAC: features are drawn to common class means, and each head is mixed from those that help it.

Xu, Tong, Huang: Personalized Federated Learning with Feature Alignment and Classifier
Collaboration. ICLR 2023.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss, one_hot

from coterie.core.answers import Form
from coterie.core.bounds import Count, NonNegative, Positive, Share, dataclass
from coterie.core.rows import put, repeated, stacked
from coterie.core.types import (
    AnswerForm,
    Client,
    Federation,
    Known,
    Layout,
    Replies,
    Reply,
    Sent,
    State,
)
from coterie.tasks import SGD, Score, Solver, SteppedTask, Stepwise, Train, Training, trained
from coterie.words.affinity import collaboration
from coterie.words.mixing import average, mix, uniform
from coterie.words.server import ServerOptimiser


@dataclass(frozen=True)
class TrainAligned(Training, SteppedTask):
    """Train the head, then the body with its features drawn to the `prototypes` sent, if any.

    Beside the model the client tells of its features: with the model received, how much their class
    means vary (`variance`) and the means times the classes' shares (`means`); with the model sent
    back, the means themselves (`prototypes`), and of how many samples they are (`counts`).
    """

    classes: Count = 2
    head_epochs: Count = 1
    head_lr: Positive = 0.1
    lam: NonNegative = 1.0

    def answer_form(self, known: Known) -> AnswerForm:
        """A model, and what is told of its features."""
        n, means = known.samples, Form(known.kind, (self.classes, None))
        return {
            "value": known.layout.form(),
            "extra.variance": Form("float64", (), 0),
            "extra.means": means,
            "extra.prototypes": means,
            "extra.counts": Form("float32", (self.classes,), 0, n, whole=True, total=(n, n)),
        }

    def stepwise(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Stepwise[Reply]:
        """Statistics, head, body, statistics."""
        share = one_hot(client.y, self.classes).to(models.dtype)  # (n, K)
        counts = share.sum(0)
        share = share / counts.clamp_min(1)
        z, _ = layout.features(models, client.x)
        h = (counts / len(client))[:, None] * (share.T @ z)
        variance = (z.double().square().sum(1).mean() - h.double().square().sum()) / len(client)
        first = replace(self.solver, lr=self.head_lr, epochs=self.head_epochs, steps=0)
        w, _ = yield from trained(first, client, models, rng, train="head")
        if self.lam and "prototypes" in sent:
            w = self.align(w, client, sent["prototypes"], layout, rng)
        else:
            w, _ = yield from trained(self.solver, client, w, rng, train="~head")
        z, _ = layout.features(w, client.x)
        extra = {
            "variance": variance.clamp_min(0),
            "means": h,
            "prototypes": share.T @ z,
            "counts": counts.float(),
        }
        return Reply(w, extra)

    def align(
        self, start: Tensor, client: Client, goals: Tensor, layout: Layout, rng: torch.Generator
    ) -> Tensor:
        """Descend F_i + lam R_i in the body, R_i the mean square of z(x) - c_y."""
        net, entered = layout.flat(start, train="~head"), list[Tensor]()
        state, anchor = self.solver.optimiser.init(net.grad), start[: layout.trainable]
        head = net.module.get_submodule(layout.head_name or "")
        seen = head.register_forward_pre_hook(lambda _, got: entered.append(got[0].flatten(1)))
        with net.drawing(rng), seen:
            for i in self.solver.plan(client, layout, rng):
                said = net.forward(client.x[i])
                apart = mse_loss(entered.pop(), goals[client.y[i]])
                torch.autograd.backward(cross_entropy(said, client.y[i]) + self.lam * apart)
                self.solver.apply(net, state, anchor)
        return net.w.clone()


@dataclass(frozen=True)
class FedPAC:
    """A common body whose features agree by class, and for each client a mixture of all heads.

    Row i of `state.models` is the common body with the head of client i.
    """

    solver: Solver = Solver(
        lr=0.01, optimiser=SGD(momentum=0.5, weight_decay=5e-4), epochs=5, batch=50
    )  # of the body
    fraction: Share = 1.0  # of clients drawn in a round
    lam: NonNegative = 1.0  # lambda, of the pull of features to their class's common mean
    head_epochs: Count = 1  # epochs of the head, before those of the body
    head_lr: Positive = 0.1  # learning rate of the head
    collaborate: bool = True  # heads are mixed; False: each client keeps the one it trained
    server: ServerOptimiser = field(default=ServerOptimiser(), kw_only=True)  # of the body

    refuses: ClassVar[Mapping[str, str]] = {
        "merge": "heads are mixed from everybody's, and class means summed, as they come"
    }
    kind = "personal"
    score = Score()  # every client tests the body with its own head

    def init(self, fed: Federation) -> State:
        """Everybody starts from the same model; nobody knows a class mean yet."""
        return State(repeated(fed.layout.initial, len(fed.clients)), fed.clients.clone())

    def round(self, state: State, fed: Federation) -> State:
        """Train; average bodies and class means; mix heads (Algorithm 1)."""
        state = self.place(state, fed)
        cohort = fed.sample(self.fraction, among=state.placed)
        task = TrainAligned(self.solver, fed.classes, self.head_epochs, self.head_lr, self.lam)
        means = state.memory.get("prototypes")
        sent = {} if means is None else {"prototypes": means[None]}
        w = fed.ask(cohort, task, state, **sent)
        if not w:
            return state
        head, body = fed.layout.columns("head"), fed.layout.columns("~head")
        rows = w.values.clone()
        if self.collaborate:
            alpha = collaboration(w.extra["variance"], w.extra["means"].flatten(1))
            rows[:, head] = mix(alpha, rows[:, head])
        models = put(state.models, state.assign[w.clients], rows)
        before = replace(state, models=state.models[:1], assign=torch.zeros_like(state.assign))
        mean = mix(average(w.counted()), w.values)
        mean[:, head] = before.models[:, head]  # heads are no matter of the server's step
        after = self.server.advance(before, before.hold(mean), fed.layout)
        models[:, body] = after.models[:, body]
        return replace(state, models=models, memory=after.memory).hold(prototypes=common(w, means))

    def place(self, state: State, fed: Federation) -> State:
        """A newcomer takes the body and trains a head for it, from the mean of the others'."""
        new = state.unplaced
        if not len(new):
            return state
        mean = mix(uniform(state.k), state.models)  # the bodies are alike
        lodged = State.shared(mean[0], len(fed.clients))
        fit = replace(self.solver, lr=self.head_lr, epochs=self.head_epochs, steps=0)
        w = fed.ask(new, Train(fit, train="head"), lodged)
        rows = torch.arange(state.k, state.k + len(w))
        return state.hold(stacked(state.models, w.values)).reassign(w.clients, rows)


def common(w: Replies, before: Tensor | None) -> Tensor:
    """(K, d) mean features of each class, by samples; one that nobody has stays as it was."""
    n = w.extra["counts"].double()  # (m, K)
    total = torch.einsum("mk,mkd->kd", n, w.extra["prototypes"].double())
    means = (total / n.sum(0).clamp_min(1)[:, None]).to(w.values.dtype)
    if before is None:
        return means
    return torch.where((n.sum(0) > 0)[:, None], means, before)
