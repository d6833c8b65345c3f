"""A run's models taken away: whose they are, how they are made again, and what goes with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from coterie.core.client import Client
from coterie.core.errors import ConfigError, DataError
from coterie.core.suggest import similar
from coterie.data.dataset import Data, Scaler
from coterie.models.exporting import export_model
from coterie.models.saved import TrainedModel
from coterie.models.spec import ModelSpec
from coterie.tasks.score import Held

if TYPE_CHECKING:
    from coterie.studies.run.result import Result


def place_of(result: Result, client: int | str) -> int:
    """The place of a client among all: by its name, or by its place itself."""
    names = list(result.fed.names)
    if isinstance(client, str) and client in names:
        return names.index(client)
    if isinstance(client, int) and -len(names) <= client < len(names):
        return range(len(names))[client]
    raise unknown(f"no client {client!r}", f"{similar(str(client), names)}", names)


def client_row(result: Result, client: int | str) -> Tensor:
    """(P,) the model that a client uses: the very one whose accuracy is reported last."""
    i = place_of(result, client)
    name, state, task = result.fed.names[i], result.state, result.method.score.held
    if int(state.assign[i]) < 0:
        raise unknown(f"no model of client {name}", "it was not placed", [])
    if result.method.score.receives == "all" and state.k > 1:
        raise ConfigError(
            f"client {name} predicts with {state.k} models at once, and a file holds one",
            code="C058",
            why="the probabilities of its classes are a mixture of theirs",
            fix=f"take them one by one; most of its mixture is cluster {int(state.assign[i])}",
        )
    private = result.fed.layout.columns(result.method.score.private)
    own = (len(private) if isinstance(private, Tensor) else private.stop - private.start) > 0
    if result.population.remote and (own or task.trains is not None):
        raise ConfigError(
            f"the model that client {name} uses is on its own machine",
            code="C056",
            why="it adapts what the server sends, or keeps layers of its own",
            fix=f"take it there, or the part that it shares: cluster {int(state.assign[i])}",
        )
    if isinstance(task, Held) and task.trains is None:  # nothing is read of the client's data
        columns = result.fed.layout.columns(task.download)
        nothing = torch.empty(0)
        kept = result.fed.memories().get(i, {})
        blank = Client(nothing, nothing, nothing, nothing, name, kept)
        row = state.models[state.assign[i]][columns]
        return task(blank, row, {}, result.fed.layout, torch.Generator()).value
    try:
        replies = result.fed.at(state.round, "evaluate").ask(torch.tensor([i]), task, state)
    except DataError as error:
        raise DataError(
            f"the model that client {name} uses is adapted to its data, which are not at hand",
            code=error.code,
            where=error.where,
            why=error.why,
            fix=f"{error.fix};\nor take the model before it is adapted: cluster "
            f"{int(state.assign[i])}",
        ) from error
    return replies.values[0]


def cluster_row(result: Result, cluster: int) -> Tensor:
    """(P,) the model of a cluster, as the server holds it."""
    held = result.state.assign[result.state.placed].unique().tolist()
    if cluster not in held:
        raise unknown(f"no cluster {cluster}", "", [str(c) for c in held])
    return result.state.models[cluster]


def unknown(what: str, why: str, there: list[str]) -> ConfigError:
    """The error about somebody the run does not have."""
    some = ", ".join(there[:20]) + ", ..." * (len(there) > 20)
    fix = f"there are {some}" if there else "choose another"
    return ConfigError(f"the run has {what}", code="C037", why=why, fix=fix)


def spec_of(result: Result) -> ModelSpec:
    """What is needed to use the models of a run."""
    clients = result.population
    return ModelSpec.of(result.fed.layout, clients.shape, clients.class_names, clients.scaling)


def scaler_for(result: Result, data: Data) -> Scaler:
    """How samples from elsewhere are scaled for a run's models: by the run's numbers.

    In a federation everybody scales by the numbers of its own data, and so does whoever comes.
    """
    scaling = result.population.scaling
    return (
        Scaler.of(data, scaling["how"]) if scaling["peak"] is None else Scaler.from_plain(scaling)
    )


def row_and_owner(
    result: Result, client: int | str | None, cluster: int | None
) -> tuple[Tensor, dict[str, Any]]:
    """The model that is asked for, and whose it is."""
    if (client is None) == (cluster is None):
        raise ConfigError(
            "one model is asked for: a client's or a cluster's",
            code="C037",
            fix="name either a client or a cluster",
        )
    about: dict[str, Any] = {"round": result.state.round}
    if client is None:
        assert cluster is not None
        return cluster_row(result, cluster), {"cluster": cluster, **about}
    i = place_of(result, client)
    whose = {"client": result.fed.names[i], "cluster": int(result.state.assign[i])}
    return client_row(result, i), whose | about


def take(
    result: Result, path: str | Path, client: int | str | None = None, cluster: int | None = None
) -> Path:
    """Write the model of a client or a cluster, with all that is needed to use it."""
    row, about = row_and_owner(result, client, cluster)
    return export_model(Path(path), result.fed.layout, row, spec_of(result), about)


def trained_model(
    result: Result, client: int | str | None = None, cluster: int | None = None
) -> TrainedModel:
    """The model of a client or a cluster, which takes samples as they are stored."""
    row, about = row_and_owner(result, client, cluster)
    return TrainedModel(result.fed.layout.module(row), spec_of(result), about)


def scaled_by(model: TrainedModel, scaler: Scaler) -> TrainedModel:
    """The same model for whoever scales samples by other numbers: a client by its own."""
    spec = replace(model.spec, scaling=scaler.plain())
    return TrainedModel(model.net, spec, model.about)
