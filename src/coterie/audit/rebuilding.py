"""Samples rebuilt from what was sent: exactly from a first dense layer, or by matching gradients.

The attacker is a curious server: it knows the model that it sent, the network, the recipe and how
samples are scaled, and is told how many samples there are.
Analytic: the row of a first dense layer's gradient over that of its bias is the sample itself.
By matching: Zhu, Liu, Han, NeurIPS 2019, with the angle of Geiping et al., NeurIPS 2020.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

from coterie.audit.pictures import Frame
from coterie.audit.uploads import Part, Upload
from coterie.core.layout import Layout
from coterie.tasks import Solver
from coterie.words.distance import trajectory

STEPS = 300  # of matching, as in CFLGT's figure
STARTS = 4  # searches at most
FOUND = 0.01  # how near a search must come to be the last
RATE, SMOOTH = 0.1, 1e-3  # of a step over the range of pixels; and how much roughness counts
GUESSES = 64  # rows of a dense layer that are looked at
Objective = Callable[[Tensor], Tensor]  # samples (m, ...) -> how far they are from what was seen


@dataclass(frozen=True)
class Gradient:
    """A gradient as an attacker has it: some columns of a model's, and the model."""

    row: Tensor  # (P,) the model at which it was taken
    places: Tensor  # (c,) its columns, all of them trainable
    value: Tensor  # (c,)


def gradient_of(upload: Upload, part: Part, layout: Layout) -> Gradient:
    """The mean gradient of a training, from the weights before and after, or as it was sent."""
    start = upload.start(layout)
    places = torch.arange(layout.size)[layout.columns(part.columns)]
    value = part.value.reshape(-1, len(places))[0]  # of several models, the first
    if part.kind != "gradient":
        value = (start[places] - value) / walked(upload)
    learns = places < layout.trainable
    return Gradient(start, places[learns], value[learns])


def walked(upload: Upload) -> float:
    """Learning rate times steps: by what a change is divided to be a mean gradient."""
    solver = upload.task.trains
    if not isinstance(solver, Solver):
        return 1.0
    epochs = int(upload.sent["epochs"]) if "epochs" in upload.sent else None
    return solver.lr * solver.most_steps(len(upload.client), epochs)


class Network:
    """A model whose gradients can themselves be differentiated."""

    def __init__(self, layout: Layout, row: Tensor) -> None:
        self.module = layout.module(row)
        named = dict(self.module.named_parameters())
        self.learning = [named[n] for n, s in layout.slices.items() if s.start < layout.trainable]
        self.head = None if layout.head_name is None else layout.head_name

    def gradient(self, x: Tensor, y: Tensor) -> Tensor:
        """(trainable,) of the mean cross-entropy; y are labels, or probabilities of them."""
        loss = cross_entropy(self.module(x), y)
        found = torch.autograd.grad(loss, self.learning, create_graph=True, materialize_grads=True)
        return torch.cat([g.flatten() for g in found])

    def forces(self, x: Tensor, y: Tensor) -> Tensor:
        """(2, C) what CFLGT would send for these samples."""
        seen: list[Tensor] = []
        head = self.module.get_submodule(self.head or "")
        with head.register_forward_pre_hook(lambda _, got: seen.append(got[0].flatten(1))):
            said = self.module(x)
        return trajectory(seen[0], said.softmax(1), y)


def first_dense(net: nn.Module, shape: tuple[int, ...]) -> str | None:
    """The name of a dense layer with a bias that is given the samples as they are, if any."""
    probe, found = torch.rand(1, *shape), list[str]()

    def look(name: str) -> Callable[..., None]:
        def see(_: nn.Module, got: tuple[Any, ...]) -> None:
            if torch.equal(got[0].flatten(1), probe.flatten(1)):
                found.append(name)

        return see

    layers = [(n, p) for n, p in net.named_modules() if isinstance(p, nn.Linear)]
    hooks = [p.register_forward_pre_hook(look(n)) for n, p in layers if p.bias is not None]
    with torch.no_grad():
        net(probe)
    for hook in hooks:
        hook.remove()
    return found[0] if found else None


def analytic(seen: Gradient, layout: Layout, shape: tuple[int, ...]) -> Tensor | None:
    """(m, ...) samples read off the gradient of a first dense layer; None if there is none.

    Exact for one sample. Of several, each row is a mixture of those that its unit answers to.
    """
    name = first_dense(layout.module(seen.row), shape)
    if name is None:
        return None
    full = seen.value.new_zeros(layout.size)
    full[seen.places] = seen.value
    bias = full[layout.columns(f"{name}.bias")]
    weight = full[layout.columns(f"{name}.weight")].view(len(bias), -1)
    order = bias.abs().argsort(descending=True)[:GUESSES]
    order = order[bias[order] != 0]
    if not len(order) or not weight.any():  # the layer was not sent
        return None
    return (weight[order] / bias[order, None]).view(-1, *shape)


def matched(
    seen: Gradient, layout: Layout, frame: Frame, y: Tensor, rng: torch.Generator, **how: Any
) -> Tensor:
    """(m, ...) samples of these labels whose gradient has the direction of the one seen."""
    net = Network(layout, seen.row)

    def far(x: Tensor) -> Tensor:
        return 1 - cosine_similarity(net.gradient(x, y)[seen.places], seen.value, dim=0)

    return searched(far, len(y), frame, rng, **how)


def pulled(
    row: Tensor,
    seen: Tensor,
    layout: Layout,
    frame: Frame,
    y: Tensor,
    rng: torch.Generator,
    **how: Any,
) -> Tensor:
    """(m, ...) samples of these labels that exert the forces (2, C) seen."""
    net, size = Network(layout, row), seen.square().sum()

    def far(x: Tensor) -> Tensor:
        return (net.forces(x, y) - seen).square().sum() / size

    return searched(far, len(y), frame, rng, **how)


def searched(
    far: Objective,
    count: int,
    frame: Frame,
    rng: torch.Generator,
    *,
    steps: int = STEPS,
    starts: int = STARTS,
) -> Tensor:
    """(count, ...) samples that come nearest to what was seen: the best of some searches.

    A search may get stuck; by how far it is from what was seen the attacker can tell.
    """
    best, least = descended(far, count, frame, rng, steps)
    for _ in range(starts - 1):
        if least < FOUND:
            break
        other, off = descended(far, count, frame, rng, steps)
        best, least = (other, off) if off < least else (best, least)
    return frame.scaled(best)


def descended(
    far: Objective, count: int, frame: Frame, rng: torch.Generator, steps: int
) -> tuple[Tensor, float]:
    """One search, from noise, by Adam on the signs of gradients of pixels; and how far it is."""
    span = frame.high - frame.low
    shape = (count, *frame.typical.shape)
    u = (torch.rand(shape, generator=rng) * span + frame.low).requires_grad_()
    adam = torch.optim.Adam([u], lr=RATE * span)
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    best, least = u.detach().clone(), float("inf")
    for _ in range(steps):
        off = far(frame.scaled(u))
        if (now := float(off.detach())) < least:
            best, least = u.detach().clone(), now
        u.grad = torch.autograd.grad(off + SMOOTH * roughness(u / span), u)[0].sign()
        adam.step()
        slower.step()
        with torch.no_grad():
            u.clamp_(frame.low, frame.high)
    return best, least


def roughness(u: Tensor) -> Tensor:
    """The total variation of images; nothing for what is no image."""
    if u.ndim < 4:
        return u.new_zeros(())
    return u.diff(dim=-1).abs().mean() + u.diff(dim=-2).abs().mean()


def shown(vectors: Tensor, frame: Frame) -> Tensor:
    """(p, ...) singular vectors (features, p) as samples: as bright as a sample can be.

    Their sign and length are unknown: of both signs that one which leaves the range of pixels least
    where its brightest pixel is as bright as there are.
    """
    found = []
    for v in vectors.T[vectors.abs().sum(0) > 0].float():
        x = v.view(frame.typical.shape)
        tries = [fitted(sign * x, frame) * sign * x for sign in (1.0, -1.0)]
        found.append(min(tries, key=lambda t: float((frame.low - frame.raw(t)).clamp(min=0).sum())))
    return torch.stack(found)


def fitted(x: Tensor, frame: Frame) -> float:
    """The largest factor with which a sample stays below the highest pixel."""
    slope, room = x * frame.std, frame.high - frame.mean
    up = slope > 1e-6
    return float((room.expand_as(slope)[up] / slope[up]).min()) if up.any() else 0.0
