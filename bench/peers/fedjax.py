"""FedJAX: its federated averaging with the jit backend."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import numpy as np
from fedjax import ClientDataset, ShuffleRepeatBatchHParams, optimizers
from fedjax.algorithms import fed_avg
from jax import lax
from jax import numpy as jnp

from bench.contestant import Channel, versions
from bench.workloads import Array, Workload

Parameters = list[Any]
jax.tree_map = jax.tree_util.tree_map  # fedjax 0.0.17 calls it by this name, which JAX dropped


def forward(workload: Workload, parameters: Parameters, x: Any) -> Any:
    """The logits, channels last, as XLA likes it on a CPU."""
    for k in range(len(workload.channels)):
        w, b = parameters[2 * k : 2 * k + 2]
        x = lax.conv_general_dilated(
            x, w, (1, 1), [(workload.padding,) * 2] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + b)
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = x.reshape(len(x), -1)
    linear = parameters[2 * len(workload.channels) :]
    for w, b in zip(linear[::2], linear[1::2], strict=True):
        x = x @ w + b
        x = x if w is linear[-2] else jax.nn.relu(x)
    return x


def to_jax(workload: Workload, tensors: list[Array]) -> Parameters:
    """PyTorch's shapes turned round: channels last, inputs before outputs."""
    depth, side = (*workload.shape[:1], *workload.channels)[-1], workload.sides[-1]
    first = 2 * len(workload.channels)
    turned: Parameters = []
    for k, t in enumerate(tensors):
        if k == first:  # what was flattened had its channels first
            t = t.reshape(len(t), depth, side, side).transpose(0, 2, 3, 1).reshape(len(t), -1)
        turned.append(jnp.asarray(t.transpose(2, 3, 1, 0) if t.ndim == 4 else t.T))
    return turned


def to_numpy(workload: Workload, parameters: Parameters) -> list[Array]:
    """`to_jax` undone."""
    depth, side = (*workload.shape[:1], *workload.channels)[-1], workload.sides[-1]
    first = 2 * len(workload.channels)
    tensors: list[Array] = []
    for k, p in enumerate(parameters):
        t = np.asarray(p)
        t = t.transpose(3, 2, 0, 1) if t.ndim == 4 else t.T
        if k == first:
            t = t.reshape(len(t), side, side, depth).transpose(0, 3, 1, 2).reshape(len(t), -1)
        tensors.append(np.ascontiguousarray(t))
    return tensors


class FedJax:
    """FedJAX's own FedAvg."""

    def __init__(self, workload: Workload) -> None:
        self.workload, self.done = workload, 0
        self.clients = []
        for i in range(workload.clients):
            x, y = workload.client(i)
            self.clients.append(ClientDataset({"x": x.transpose(0, 2, 3, 1).copy(), "y": y}))
        self.algorithm = cache(self._algorithm)
        self.state = self.algorithm(workload.epochs).init(to_jax(workload, workload.initial()))
        # Compile for every shape of batch there will be: one client with few samples has them all.
        few = self.clients[0][: workload.samples % workload.batch + workload.batch]
        self.algorithm(workload.epochs).apply(self.state, [("0", few, jax.random.PRNGKey(0))])

    def _algorithm(self, epochs: int) -> Any:
        workload = self.workload

        def loss(parameters: Parameters, batch: dict[str, Any], rng: Any) -> Any:
            logits = jax.nn.log_softmax(forward(workload, parameters, batch["x"]))
            return -jnp.take_along_axis(logits, batch["y"][:, None], axis=1).mean()

        return fed_avg.federated_averaging(
            jax.grad(loss),
            optimizers.sgd(workload.lr, workload.momentum),
            optimizers.sgd(1.0),
            ShuffleRepeatBatchHParams(workload.batch, num_epochs=epochs),
        )

    def round(self, epochs: int) -> None:
        """Train and average, and wait for the result."""
        keys = jax.random.split(jax.random.PRNGKey(self.done), len(self.clients))
        clients = [(str(i), c, keys[i]) for i, c in enumerate(self.clients)]
        self.state, _ = self.algorithm(epochs).apply(self.state, clients)
        jax.block_until_ready(self.state.params)
        self.done += 1

    def weights(self) -> list[Array]:
        """The global model."""
        return to_numpy(self.workload, self.state.params)


def main(workload: Workload, channel: Channel) -> None:
    """Serve rounds."""
    channel.serve(FedJax(workload), versions=versions("fedjax", "jax"))
