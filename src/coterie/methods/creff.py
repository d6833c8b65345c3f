"""CReFF: FedAvg with a classifier that the server trains again, on features it made up.

Shang, Lu, Huang, Wang: Federated Learning on Heterogeneous and Long-Tailed Data via Classifier
Re-Training with Federated Features. IJCAI 2022.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, one_hot, pad

from coterie.core.answers import Form
from coterie.core.bounds import Count, Positive, Share, dataclass
from coterie.core.rng import stream
from coterie.core.types import AnswerForm, Client, Federation, Known, Layout, Reply, Sent, State
from coterie.methods.fedavg import FedAvg
from coterie.tasks import Solver, SteppedTask, Stepwise, Training, trained
from coterie.words.mixing import merge


@dataclass(frozen=True)
class TrainAndGradients(Training, SteppedTask):
    """FedAvg's training, and before it the mean gradient of the classifier on each class.

    The classifier received is the re-trained one, at which the gradients are taken; training starts
    from the averaged one, which is sent beside it. A class the client does not hold gets zeros.
    """

    classes: Count = 2

    def answer_form(self, known: Known) -> AnswerForm:
        """The trained model, and a gradient of the classifier for each class."""
        model = known.layout.form()
        phi = classifier(known.layout.initial, known.layout, self.classes)
        return {"value": model, "extra.gradients": Form(model.dtype, (self.classes, *phi.shape))}

    def stepwise(
        self, client: Client, models: Tensor, sent: Sent, layout: Layout, rng: torch.Generator
    ) -> Stepwise[Reply]:
        """One forward pass, then training."""
        z, _ = layout.features(models, client.x)
        phi = classifier(models, layout, self.classes)
        own = torch.stack([gradients(z[client.y == c], phi, c) for c in range(self.classes)])
        start = models.clone()
        start[layout.columns("head")] = sent["head"]
        w, _ = yield from trained(self.solver, client, start, rng)
        return Reply(w, {"gradients": own})


@dataclass(frozen=True)
class CReFF(FedAvg):
    """FedAvg; the server then learns features whose gradients match the clients', class by class,
    and re-trains the classifier on them, as many of a rare class as of a frequent one.

    `state.models` is the averaged body with the re-trained classifier, which is tested. Clients
    train the averaged classifier, which is kept beside it.
    """

    solver: Solver = Solver(lr=0.1, epochs=10, batch=32)
    fraction: Share = 0.4  # of clients drawn in a round
    features: Count = 100  # R, federated features of each class
    match_steps: Count = 100  # of the features towards the clients' gradients, in each round
    match_lr: Positive = 0.1  # their rate
    retrain_steps: Count = 300  # of the classifier on the features, in each round
    retrain_lr: Positive = 0.01  # their rate

    refuses: ClassVar[Mapping[str, str]] = {
        "merge": "its classifier follows from the plain mean of the clients' gradients"
    }

    def init(self, fed: Federation) -> State:
        """Features of pure chance, and no class of which anything is known."""
        phi = classifier(fed.layout.initial, fed.layout, fed.classes)
        dim = phi.shape[1] - has_bias(fed.layout)
        rng = stream(fed.seed, "federated features")
        V = torch.randn(fed.classes, self.features, dim, generator=rng, dtype=phi.dtype)
        return State.shared(fed.layout.initial, len(fed.clients)).hold(
            features=V,
            known=torch.zeros(fed.classes, dtype=torch.bool),
            head=fed.layout.initial[fed.layout.columns("head")],
        )

    def round(self, state: State, fed: Federation) -> State:
        """Average the models, match the gradients, re-train the classifier."""
        state = self.place(state, fed)
        head = fed.layout.columns("head")
        task = TrainAndGradients(self.solver, fed.classes)
        w = fed.ask(fed.sample(self.fraction), task, state, head=state.memory["head"][None])
        if not w:
            return state
        phi = classifier(state.models[0], fed.layout, fed.classes)
        G = mean_of_owners(w.extra["gradients"])  # (C, C, width)
        V = match(state.memory["features"], phi, G, self.match_steps, self.match_lr)
        known = state.memory["known"] | held(G)
        trained = state.models.clone()
        trained[0, head] = state.memory["head"]  # where the clients started
        start = state.hold(trained)
        after = self.server.advance(start, merge(start, w), fed.layout)
        averaged = after.models
        phi = retrain(phi, V, known, self.retrain_steps, self.retrain_lr)
        models = averaged.clone()
        dim = V.shape[2]
        models[0, head] = torch.cat([phi[:, :dim].flatten(), phi[:, dim:].flatten()])
        return after.hold(models, features=V, known=known, head=averaged[0, head].clone())


def has_bias(layout: Layout) -> int:
    """1 if the head has a bias, which is the last column of the classifier, else 0."""
    return int(f"{layout.head_name}.bias".removeprefix(".") in layout.names)


def classifier(row: Tensor, layout: Layout, classes: int) -> Tensor:
    """phi (C, width): the weights of the head, and its bias, if any, as the last column."""
    parts = [row[layout.columns("head.weight")].view(classes, -1)]
    if has_bias(layout):
        parts.append(row[layout.columns("head.bias")].view(classes, 1))
    return torch.cat(parts, 1)


def gradients(z: Tensor, phi: Tensor, label: Tensor | int) -> Tensor:
    """The mean gradient of phi on features of one label: (..., R, dim) -> (..., C, width).

    Zeros where there is no feature.

    >>> z = torch.tensor([[1.0, 0.0]])
    >>> gradients(z, torch.zeros(2, 3), 0).tolist()
    [[-0.5, -0.0, -0.5], [0.5, 0.0, 0.5]]
    """
    z = pad(z, (0, phi.shape[1] - z.shape[-1]), value=1.0)  # the bias sees a 1
    label = torch.as_tensor(label)
    target = one_hot(label, len(phi)).to(phi.dtype).unsqueeze(-2)  # (..., 1, C)
    error = (z @ phi.T).softmax(-1) - target
    return error.mT @ z / max(z.shape[-2], 1)


def mismatch(G: Tensor, real: Tensor, dim: int) -> Tensor:
    """How far gradients point away from the real ones, class by class: (C, C, width) twice -> (C,).

    The sum of 1 - cos over the rows of the weights, and of 1 - cos of the bias.
    """
    rows = 1 - cosine_similarity(G[..., :dim], real[..., :dim], dim=-1, eps=1e-6)
    bias = 1 - cosine_similarity(G[..., dim:], real[..., dim:], dim=-2, eps=1e-6)
    return rows.sum(-1) + bias.sum(-1)


def held(G: Tensor) -> Tensor:
    """(..., C) whether somebody holds the class: (..., C, C, width) gradients are not all zero."""
    return (G != 0).flatten(-2).any(-1)


def mean_of_owners(G: Tensor) -> Tensor:
    """(m, C, C, width) -> (C, C, width): each class's mean over the clients that hold it."""
    return G.sum(0) / held(G).sum(0).clamp(min=1)[:, None, None]


def match(V: Tensor, phi: Tensor, real: Tensor, steps: int, lr: float) -> Tensor:
    """The federated features (C, R, dim) after so many steps towards the real gradients.

    Those of a class nobody holds this time stay as they are.
    """
    own = held(real)
    labels = torch.arange(len(V))[own]
    z = V[own]
    for _ in range(steps):
        z = z.detach().requires_grad_()
        loss = mismatch(gradients(z, phi, labels), real[own], V.shape[2]).sum()
        z = z.detach() - lr * torch.autograd.grad(loss, z)[0]
    return V.index_copy(0, labels, z)


def retrain(phi: Tensor, V: Tensor, known: Tensor, steps: int, lr: float) -> Tensor:
    """The classifier after so many steps on all features of the classes that are known."""
    labels = torch.arange(len(V))[known]
    for _ in range(steps):
        phi = phi - lr * gradients(V[known], phi, labels).mean(0)
    return phi
