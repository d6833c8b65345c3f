"""What a run leaves in your hands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from coterie.core.types import Engine, Method, State
from coterie.data.population import Population
from coterie.runs import metrics
from coterie.runs.history import History

if TYPE_CHECKING:
    from coterie.data.population_given import Given
    from coterie.studies.placement import Placement


@dataclass(frozen=True)
class PerClient:
    """One number per client.

    >>> accuracy = PerClient({"a": 0.5, "b": 1.0})
    >>> accuracy.mean(), accuracy.worst(), accuracy["b"]
    (0.75, 0.5, 1.0)
    """

    values: Mapping[str, float]

    def __getitem__(self, client: str | int) -> float:
        return self.values[str(client)]

    def __len__(self) -> int:
        return len(self.values)

    def mean(self) -> float:
        """The plain mean over clients."""
        return float(self._tensor().mean())

    def std(self) -> float:
        """The deviation over clients (population)."""
        return float(self._tensor().std(correction=0))

    def worst(self, share: float = 0.0) -> float:
        """The worst client, or the mean of the worst share of clients."""
        count = max(1, round(share * len(self)))
        return metrics.bottom_k(self._tensor(), count)

    def _tensor(self) -> torch.Tensor:
        return torch.tensor(list(self.values.values()), dtype=torch.float64)


@dataclass(frozen=True)
class Result:
    """A finished run: its models, who holds which, and everything that was measured."""

    method: Method
    population: Population
    fed: Engine
    state: State
    history: History
    summary: Mapping[str, Any]
    folder: Path | None = None

    @property
    def accuracy(self) -> PerClient:
        """Each client's accuracy at the end, as the method is meant to be used."""
        return PerClient(self.history.clients(self.summary["round"], stage=self.summary["stage"]))

    @property
    def clusters(self) -> dict[str, int]:
        """Which model each client holds."""
        return {self.fed.names[i]: int(self.state.assign[i]) for i in self.state.placed.tolist()}

    def model(self, client: int | str) -> nn.Module:
        """The model a client uses, as a plain module: its own layers, and adapted, where it is so.

        It is the one whose accuracy is reported last: the same draws make it again.
        """
        i = client if isinstance(client, int) else list(self.fed.names).index(client)
        then = self.fed.at(self.state.round, "evaluate")
        held = then.ask(torch.tensor([i]), self.method.score.held, self.state)
        return self.fed.layout.module(held.values[0])

    def place(self, newcomers: Given | Sequence[Given], epochs: int = 5) -> Placement:
        """Give newcomers a model and let each adapt it: a `Client`, (x, y), with its test set, or
        several of them. Nobody else moves, and this result stays as it is.
        """
        from coterie.studies.placement import place

        return place(self, newcomers, epochs)

    def report(self, file: str | Path = "report.html") -> Path:
        """Write the page of this run: one file that opens without a network."""
        from coterie.report import write_result

        return write_result(self, file)

    def plot(self, chart: str = "accuracy") -> Any:
        """A chart of the page as a Plotly figure: accuracy, gains, river, distances, labels, ..."""
        from coterie.report import draw

        return draw(self, chart)

    def _repr_html_(self) -> str:
        from coterie.report import card

        return card(self)


def summarise(
    history: History, *, clients: int, last_k: int, target: float | None, drift: int = 0
) -> dict[str, Any]:
    """The numbers of a run, each under its own name; never the best round by test accuracy."""
    stage = history.stages[-1]
    series = {stage: history.series("accuracy_mean", stage) for stage in history.stages}
    rounds = list(series[stage])
    final = rounds[-1]
    out: dict[str, Any] = {"round": final, "stage": stage}
    for name, values in series.items():
        trained = [v for t, v in values.items() if t > 0] or list(values.values())
        out[name] = {
            r.metric: r.value
            for r in history
            if not r.client and r.round == final and r.stage == name
        } | {
            f"accuracy_last_{last_k}": metrics.last_k_mean(trained, last_k),
            "accuracy_top_5": metrics.top_k_mean(trained, 5),
        }
        if target is not None:
            hit = next((t for t, v in values.items() if t > 0 and v >= target), None)
            out[name]["target"] = target
            out[name]["rounds_to_target"] = hit
            out[name]["bytes_to_target"] = None if hit is None else spent(history, hit)
    out["clusters"] = {
        r.metric: r.value for r in history if r.round == final and r.stage == "clusters"
    }
    if drift:
        out["clusters"]["rounds_to_recover"] = recovery(history, drift, clients)
    out["bytes_down"] = int(history.total("bytes_down"))
    out["bytes_up"] = int(history.total("bytes_up"))
    return out


def spent(history: History, until: int) -> int:
    """Bytes both ways up to a round."""
    return int(history.total("bytes_down", until=until) + history.total("bytes_up", until=until))


def recovery(history: History, drift: int, clients: int) -> int | None:
    """Rounds from a drift until every client is in the right cluster again; None: never yet."""
    right = history.series("clusters_correct", "clusters")
    return next((t - drift for t, v in right.items() if t > drift and v == clients), None)
