"""Attacks that must succeed and attacks that must fail, on the data and the network at hand.

An attack that finds nothing has shown something only if it would have found it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from coterie.audit import labels, membership, rebuilding
from coterie.audit.findings import LIKENESS, OUTLINE, Control
from coterie.audit.pictures import Frame, psnr
from coterie.audit.rebuilding import Gradient
from coterie.core.client import Client
from coterie.core.layout import Layout
from coterie.core.rng import stream
from coterie.tasks import Adam, Solver
from coterie.tasks.solver import Descent

EXACT = 40.0  # dB of an analytic attack on one sample
MEMORISED = 0.7  # least area of a model that knows its samples by heart
SAMPLES = 60  # that such a model is trained on
TRIES = 20  # samples whose label is told one by one


def gradient_at(layout: Layout, row: Tensor, x: Tensor, y: Tensor) -> Gradient:
    """The true gradient of a model on some samples: what one step of SGD sends."""
    value = rebuilding.Network(layout, row).gradient(x, y).detach()
    return Gradient(row, torch.arange(layout.trainable), value)


def noise_like(seen: Gradient, rng: torch.Generator) -> Gradient:
    """A gradient of the same length that has nothing to do with any sample."""
    value = torch.randn(seen.value.shape, generator=rng)
    return replace(seen, value=value * seen.value.norm() / value.norm())


def dense_network(shape: tuple[int, ...], classes: int, seed: int) -> Layout:
    """A small network whose first layer is dense."""
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(seed)
        inputs = int(torch.Size(shape).numel())
        layers = (nn.Flatten(), nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, classes))
        return Layout(nn.Sequential(*layers))


def of_rebuilding(
    layout: Layout, frame: Frame, client: Client, classes: int, seed: int
) -> list[Control]:
    """Of the two attacks on gradients: one sample, one step; and noise instead of a gradient."""
    x, y = client.x[:1], client.y[:1]
    shape, span = tuple(x.shape[1:]), frame.high - frame.low
    true = frame.pixels(x)[0]

    def likeness(found: Tensor | None) -> float:
        return 0.0 if found is None else psnr(frame.pixels(found[0]), true, span)

    small = dense_network(shape, classes, seed)
    exact = rebuilding.analytic(gradient_at(small, small.initial, x, y), small, shape)
    seen = gradient_at(layout, layout.initial, x, y)
    found = rebuilding.matched(seen, layout, frame, y, stream(seed, "control"))
    noise = noise_like(seen, stream(seed, "noise"))
    nothing = rebuilding.matched(noise, layout, frame, y, stream(seed, "control"), starts=1)
    a, b, c = likeness(exact), likeness(found), likeness(nothing)
    blind = max(OUTLINE, psnr(frame.typical, true, span))
    return [
        Control("a dense network, one sample, one step", "analytic", "succeed", a, "dB",
                f"at least {EXACT:g}", a >= EXACT),
        Control("this network's whole gradient, one sample", "matching", "succeed", b, "dB",
                f"at least {LIKENESS:g}", b >= LIKENESS),
        Control("noise in place of the gradient", "matching", "fail", c, "dB",
                f"below {blind:.1f}", c < blind),
    ]  # fmt: skip


def of_labels(layout: Layout, frame: Frame, x: Tensor, y: Tensor, seed: int) -> list[Control]:
    """Of labels from the last layer: one sample at a time, and noise instead of the gradient."""
    probs = labels.expected(layout, layout.initial, frame, stream(seed, "probes"))
    right = {"true": 0, "noise": 0}
    tries = min(TRIES, len(y))
    for i in range(tries):
        seen = gradient_at(layout, layout.initial, x[i : i + 1], y[i : i + 1])
        rng = stream(seed, "labels", i)
        for name, one in (("true", seen), ("noise", noise_like(seen, rng))):
            if (bias := labels.bias_of(one, layout)) is not None:
                right[name] += int(labels.from_bias(bias, probs, 1).argmax() == y[i])
    a, b = right["true"] / tries, right["noise"] / tries
    return [
        Control("the label of one sample", "labels", "succeed", a, "right", "at least 0.9",
                a >= 0.9),
        Control("noise in place of the gradient", "labels", "fail", b, "right", "below 0.5",
                b < 0.5),
    ]  # fmt: skip


def of_membership(layout: Layout, x: Tensor, y: Tensor, seed: int) -> list[Control]:
    """Of the threshold on losses: a model that knows its samples by heart, and drawn members."""
    rng = stream(seed, "members")
    order = torch.randperm(len(y), generator=rng)
    m = min(SAMPLES, len(y) // 2)
    inside, outside = order[:m], order[m : 2 * m]
    nothing = x[:0], y[:0]
    learner = Client(x[inside], y[inside], *nothing, name="by heart")
    recipe = Solver(lr=0.001, optimiser=Adam(), epochs=100, batch=16)
    row, _ = Descent(recipe, learner, layout.initial, rng).run_single(layout)
    known = membership.losses(layout, row, x[inside], y[inside])
    unknown = membership.losses(layout, row, x[outside], y[outside])
    a = membership.area(known, unknown).auc
    b = membership.shuffled(known, unknown, rng)
    return [
        Control(f"a model of {m} samples known by heart", "membership", "succeed", a, "AUC",
                f"at least {MEMORISED}", a >= MEMORISED),
        Control("members drawn at random", "membership", "fail", b, "AUC", "0.5 ± 0.05",
                abs(b - 0.5) <= 0.05),
    ]  # fmt: skip


def all_of(
    layout: Layout, frame: Frame, client: Client, x: Tensor, y: Tensor, classes: int, seed: int
) -> tuple[Control, ...]:
    """Every control; x and y are samples of all clients."""
    return (
        *of_rebuilding(layout, frame, client, classes, seed),
        *of_labels(layout, frame, x, y, seed),
        *of_membership(layout, x, y, seed),
    )


def works(controls: Sequence[Control], attack: str) -> bool:
    """Whether the failures of an attack mean something."""
    return all(control.passed for control in controls if control.attack == attack)
