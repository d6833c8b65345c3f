"""Noise that hides a single sample of a client: its recipe, and gradients under it.

DP-SGD (Abadi et al., CCS 2016): every sample is drawn with the same chance (Poisson sampling), the
gradient of each is shortened to a norm, their sum is blurred, and what comes of it is divided by
the number of samples that was to be expected.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from coterie.core.bounds import Chance, NonNegative, Positive, dataclass
from coterie.core.flat_module import FlatModule
from coterie.core.layout import Layout
from coterie.core.types import Sendable

TINY = 1e-12  # added to norms, which may be zero


@dataclass(frozen=True)
class Privacy(Sendable):
    """How each sample of a client is hidden in all that the client sends.

    A sample that is left out changes every sum that is sent by at most the norm `clip`; `noise`
    times that is the deviation of what is added to each number.
    """

    noise: NonNegative = 0.0  # deviation of the noise, in multiples of clip; 0: none
    clip: Positive = 1.0  # the norm to which what one sample contributes is shortened
    delta: Chance = 1e-5  # the chance that epsilon may fail with

    @property
    def on(self) -> bool:
        """Whether there is any noise."""
        return self.noise > 0

    def blurred(self, each: Tensor, rng: torch.Generator) -> Tensor:
        """(d,) the sum of what some samples contribute (B, d), each shortened, with noise.

        >>> rng = torch.Generator().manual_seed(0)
        >>> Privacy(noise=1e-9).blurred(torch.tensor([[3.0, 4.0]]), rng).round(decimals=4).tolist()
        [0.6000000238418579, 0.800000011920929]
        """
        short = (self.clip / (each.norm(dim=1, keepdim=True) + TINY)).clamp(max=1)
        total: Tensor = (each * short).sum(0)
        noise = torch.randn(total.shape, generator=rng, dtype=total.dtype)
        blurred: Tensor = total + self.noise * self.clip * noise
        return blurred


def rate_of(batch: int, n: int) -> float:
    """The chance with which each of n samples is drawn, for mini-batches of this size; 0: all."""
    return min(1.0, batch / n) if batch and n else 1.0


def drawn(n: int, rate: float, steps: int, rng: torch.Generator) -> Iterator[Tensor]:
    """The samples of each step: each is drawn by itself, so that some steps may have none."""
    for _ in range(steps):
        yield (torch.rand(n, generator=rng) < rate).nonzero().flatten()


def sample_gradients(net: FlatModule, layout: Layout, x: Tensor, y: Tensor) -> Tensor:
    """(B, trainable) the gradient of the loss on each sample by itself."""
    named = dict(net.module.named_parameters(remove_duplicate=False))
    learning = [n for n, s in layout.slices.items() if s.start < layout.trainable]
    weights = {n: named[n].detach() for n in learning}
    rest = dict(net.module.named_buffers())

    def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        said = functional_call(net.module, (weights, rest), (x[None],))
        return cross_entropy(said, y[None])

    each = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")(weights, x, y)
    return torch.cat([each[n].flatten(1) for n in learning], 1)


def private_gradient(
    net: FlatModule,
    layout: Layout,
    x: Tensor,
    y: Tensor,
    expected: float,
    how: Privacy,
    rng: torch.Generator,
) -> None:
    """Put the blurred mean gradient on these samples into the module's."""
    nobody = net.grad.new_zeros(1, len(net.grad))  # if none was drawn: nothing but noise
    each = sample_gradients(net, layout, x, y) if len(y) else nobody
    if net.mask is not None:  # what does not learn neither counts nor is blurred
        each = each * net.mask
    net.grad.copy_(how.blurred(each, rng) / expected)
