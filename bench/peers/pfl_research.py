"""pfl-research: its simulated backend in one process on one thread, samples as tensors."""

from __future__ import annotations

from functools import cache

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn import functional as F

from bench.contestant import Channel, versions
from bench.workloads import Array, Workload


class Network(nn.Module):
    """The network with the two methods that pfl asks for."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """What a client minimises."""
        return F.cross_entropy(self.net(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        """What pfl measures in the first iteration, which is not counted."""
        return {"loss": Weighted(float(self.loss(x, y)) * len(y), len(y))}


class Pfl:
    """pfl's own federated averaging, one central iteration at a time."""

    def __init__(self, workload: Workload) -> None:
        self.workload, self.done = workload, 0
        self.net = workload.network()
        self.model = PyTorchModel(
            Network(self.net),
            lambda parameters, lr: torch.optim.SGD(parameters, lr, momentum=workload.momentum),
            torch.optim.SGD(self.net.parameters(), lr=1.0),
        )

        @cache  # it cuts a client's batches once
        def dataset(i: int) -> PyTorchTensorDataset:
            return PyTorchTensorDataset(tuple(map(torch.from_numpy, workload.client(i))))

        users = get_user_sampler("minimize_reuse", list(range(workload.clients)))
        data = FederatedDataset(dataset, users)
        self.backend = SimulatedBackend(training_data=data, val_data=data)
        self.algorithm = FederatedAveraging()

    def round(self, epochs: int) -> None:
        """The algorithm runs on to the next iteration, and stops there."""
        self.done += 1
        self.algorithm.run(
            NNAlgorithmParams(
                central_num_iterations=self.done,
                evaluation_frequency=10**9,
                train_cohort_size=self.workload.clients,
                val_cohort_size=0,
            ),
            self.backend,
            self.model,
            NNTrainHyperParams(
                local_num_epochs=epochs,
                local_learning_rate=self.workload.lr,
                local_batch_size=self.workload.batch,
            ),
            send_metrics_to_platform=False,
        )

    def weights(self) -> list[Array]:
        """The global model."""
        return [p.detach().numpy() for p in self.net.parameters()]


def main(workload: Workload, channel: Channel) -> None:
    """Serve rounds."""
    torch.set_num_threads(1)
    channel.serve(Pfl(workload), versions=versions("pfl", "torch"))
