"""What a client of a real federation brings: its own data, or its part of a known partition."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coterie import config as configs
from coterie.core.client import Client
from coterie.core.errors import ConfigError, DataError
from coterie.core.layout import Layout
from coterie.data.dataset import Data
from coterie.data.load import load
from coterie.data.population import Population, partition
from coterie.models.saved import read_card, save_model
from coterie.models.spec import ModelSpec
from coterie.studies.run import experiment
from coterie.studies.run.training import build_layout

READING = ("label", "owner", "size", "gray", "shape", "channels", "peak")  # asked of any reader


class TrustedNetworks:
    """The networks that a server may name: coterie's own, and those of modules that the client's
    owner trusts. A message must not choose what code runs here."""

    def __init__(self, trust: Collection[str] = ()) -> None:
        self.trust = frozenset(trust)
        self._made: dict[str, Layout] = {}

    def layout(self, setup: Mapping[str, Any]) -> Layout:
        """The network that a server's setup names, as a row of parameters; made once."""
        model, key = setup["model"], repr([setup[k] for k in ("model", "classes", "shape", "seed")])
        name = str(model["name"])
        if ":" in name and name.split(":")[0] not in self.trust:
            raise ConfigError(
                f"the server wants the network {name}, which is not coterie's",
                code="C051",
                fix=f"join with --trust {name.split(':')[0]} if it is installed here and meant",
            )
        if key not in self._made:
            made = build_layout(
                name,
                setup["shape"],
                len(setup["classes"]),
                seed=int(setup["seed"]),
                head=model["head"],
                options=model["options"],
            )
            self._made = {key: made}
        return self._made[key]


class OwnData:
    """A client with data of its own, read here and split here as the experiment says.

    The model that it uses is kept in the file `model`, if one is given.
    """

    def __init__(
        self, name: str, source: str, trust: Collection[str] = (), *, model: Path | None = None
    ) -> None:
        self.layout = TrustedNetworks(trust).layout
        self.name, self.source, self.model = name, source, model
        self._read: tuple[str, Data] | None = None
        self._split: tuple[str, Population] | None = None

    def introduce(self, setup: Mapping[str, Any]) -> Mapping[str, Any]:
        """How many samples it trains on, their classes and shape."""
        return introduction(self.split({**setup, "classes": list(self.data(setup).classes)}), 0)

    def client(self, setup: Mapping[str, Any], round: int) -> Client:
        """The client's data, the same in every round."""
        return replace(self.split(setup)[0], name=self.name)

    def keep_model(
        self, setup: Mapping[str, Any], row: Tensor, about: Mapping[str, Any]
    ) -> Path | None:
        """Write the model that this client uses now."""
        data = self.split(setup).data
        return kept(self.model, self.layout(setup), row, data, about) if self.model else None

    def data(self, setup: Mapping[str, Any]) -> Data:
        """The data as they are stored; what a server may say is how, never where."""
        options = {k: v for k, v in setup["data"]["reader"].items() if k in READING}
        key = repr(options)
        if self._read is None or self._read[0] != key:
            self._read = key, load(self.source, **options)
        return self._read[1]

    def split(self, setup: Mapping[str, Any]) -> Population:
        """Training and test samples, with the federation's numbers for the labels."""
        how, key = setup["data"], repr(setup)
        if self._split is None or self._split[0] != key:
            data = renumbered(self.data(setup), setup["classes"])
            known = ("test", "test_share", "validation_share", "scaling")
            split = {k: how[k] for k in known if k in how}
            if data.x_test is None:
                split["test"] = "own"
            self._split = key, partition(data, "iid", 1, int(setup["seed"]), **split)
        return self._split[1]


class PartitionClient:
    """Client `index` of an experiment's partition: for trying a federation on known data."""

    def __init__(
        self,
        file: Path,
        index: int,
        source: str | None = None,
        *,
        allow_code: bool = False,
        model: Path | None = None,
    ) -> None:
        self.layout, self.model = TrustedNetworks().layout, model
        given = [("data.source", source)] if source else []
        self.config = configs.load(file, given, allow_code=allow_code)
        self.index = index
        if self.config.partition.clients and not 0 <= index < self.config.partition.clients:
            raise ConfigError(
                f"there is no client {index}",
                code="C001",
                why=f"{file} has clients 0 to {self.config.partition.clients - 1}",
                fix="choose another --client",
            )

    @cached_property
    def population(self) -> Population:
        """All clients of the experiment, of whom this is one."""
        return experiment.everybody(self.config)

    @property
    def name(self) -> str:
        """The client's name in the partition."""
        return self.population.names[self.index]

    def introduce(self, setup: Mapping[str, Any]) -> Mapping[str, Any]:
        """How many samples it trains on, their classes and shape."""
        return introduction(self.population, self.index)

    def client(self, setup: Mapping[str, Any], round: int) -> Client:
        """The client's data as the partition has them in this round."""
        return self.population.at(round)[self.index]

    def keep_model(
        self, setup: Mapping[str, Any], row: Tensor, about: Mapping[str, Any]
    ) -> Path | None:
        """Write the model that this client uses now."""
        data = self.population.data
        return kept(self.model, self.layout(setup), row, data, about) if self.model else None


def kept(file: Path, layout: Layout, row: Tensor, data: Data, about: Mapping[str, Any]) -> Path:
    """Write a client's model; one of another experiment is kept beside it, under another name."""
    if file.exists():
        before = str(read_card(file).get("experiment", ""))
        if before != about["experiment"]:
            mark = hashlib.sha256(before.encode()).hexdigest()[:8]
            file.rename(file.with_stem(f"{file.stem}-{mark}"))
    spec = ModelSpec.of(layout, data.shape, data.classes, data.scaler.plain())
    return save_model(file, layout, row, spec, about)


def introduction(clients: Population, i: int) -> dict[str, Any]:
    """What one of some clients says of itself."""
    classes, shape = list(clients.class_names), list(clients.shape)
    return {"samples": len(clients[i]), "classes": classes, "shape": shape}


def renumbered(data: Data, classes: list[str]) -> Data:
    """The same data with each label numbered as the federation numbers its classes."""
    unknown = [c for c in data.classes if c not in classes]
    if unknown:
        raise DataError(
            f"the federation has no class {unknown[0]!r}",
            code="D012",
            why=f"its classes are {', '.join(classes[:20])}",
            fix="join before the federation starts, or leave these samples out",
        )
    index = torch.tensor([classes.index(c) for c in data.classes])
    test = None if data.y_test is None else index[data.y_test]
    return replace(data, y=index[data.y], y_test=test, classes=tuple(classes))
