"""Predictions for samples from elsewhere: by a client's model, or by the one that suits them."""

from __future__ import annotations

import csv
import inspect
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from coterie.core.errors import DataError
from coterie.core.units import percent
from coterie.data.dataset import Data
from coterie.models.saved import TrainedModel
from coterie.studies.finished.placement import arrivals, positions
from coterie.studies.finished.taking import scaled_by, scaler_for, spec_of, trained_model

if TYPE_CHECKING:
    from coterie.studies.run.result import Result


@dataclass(frozen=True)
class Predictions:
    """What a model says of every sample, in the order of the data: training set, then test set."""

    classes: tuple[str, ...]
    probabilities: Tensor  # (N, K)
    labels: tuple[str, ...]  # what the data say; empty if they say nothing

    @property
    def predicted(self) -> list[str]:
        """The likeliest class of each sample."""
        return [self.classes[k] for k in self.probabilities.argmax(1).tolist()]

    def to_csv(self) -> str:
        """A line for each sample: its number, label, prediction, and how likely each class is.

        Samples without labels have no such column.
        """
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        own = ["label"] if self.labels else []
        lines.writerow(["sample", *own, "prediction", *(f"p({c})" for c in self.classes)])
        rows = zip(self.predicted, self.probabilities.tolist(), strict=True)
        for i, (said, likely) in enumerate(rows):
            lines.writerow([i, *self.labels[i : i + 1], said, *(f"{p:.6g}" for p in likely)])
        return text.getvalue()


def predict(model: TrainedModel, data: Data) -> tuple[Predictions, float | None]:
    """What a model says of data as they are stored, and the share of them that is right.

    Of samples without labels nobody knows that share.
    """
    if data.shape != model.spec.shape:
        raise DataError(
            f"the samples of {data.name} have shape {data.shape}, the model's {model.spec.shape}",
            code="D018",
            where=data.name,
            fix="bring samples of the model's shape; data of images can be read with size=...",
        )
    if not data.classes:
        return Predictions(model.classes, model.probabilities(data.x), ()), None
    place = positions(data, model.classes)
    x = data.x if data.x_test is None else torch.cat([data.x, data.x_test])
    y = place[data.y if data.y_test is None else torch.cat([data.y, data.y_test])]
    likely = model.probabilities(x)
    labels = tuple(model.classes[k] for k in y.tolist())
    right = float((likely.argmax(1) == y).double().mean())
    return Predictions(model.classes, likely, labels), right


def for_client(
    result: Result, client: str | None, data: Data, cluster: int | None = None
) -> TrainedModel:
    """The model that a client uses, or a cluster's, for samples of its own."""
    return scaled_by(trained_model(result, client, cluster), scaler_for(result, data))


def for_newcomer(result: Result, data: Data) -> tuple[TrainedModel, list[str]]:
    """The model that the method gives whoever brings these data, and why, in words.

    It is not adapted: the samples that are to be predicted are no training set.
    """
    scaler, one = scaler_for(result, data), replace(data, owner=None, owner_test=None)
    seed, spec = result.fed.seed, spec_of(result)
    (client,) = arrivals(one, spec, scaler, name="newcomer", test_share=0.0, seed=seed)
    placed = result.place(client, epochs=0)
    if "newcomer" not in placed.rows:
        raise DataError(
            "the method gave the newcomer no model", code="D043", fix="name a client or a cluster"
        )
    cluster = placed.clusters.get("newcomer")
    whose = {} if cluster is None else {"cluster": cluster}
    own = replace(spec, scaling=scaler.plain())
    model = TrainedModel(placed.model("newcomer", adapted=False), own, whose)
    name = type(result.method).__name__
    rule = (inspect.getdoc(type(result.method).place) or "").partition("\n")[0]
    given = "the model of " + (f"cluster {cluster}" if whose else f"{placed.kind} training")
    said = [f"given {given}, by the rule of {name}: {rule}"]
    if cluster is not None:
        clusters = sorted(set(result.clusters.values()))
        said.append(f"right on these samples: {compared(result, clusters, model, data)}")
    return model, said


def compared(result: Result, clusters: Sequence[int], model: TrainedModel, data: Data) -> str:
    """How each cluster's model does on the same samples."""
    found = []
    for c in clusters:
        net = result.fed.layout.module(result.state.models[c])
        _, right = predict(TrainedModel(net, model.spec, {}), data)
        found.append(f"cluster {c} {percent(right or 0.0)}")
    return ", ".join(found)
