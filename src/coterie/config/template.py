"""A commented experiment file: every key there is, for a chosen method and data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_origin

from coterie.config import toml
from coterie.config.describe import describe
from coterie.config.fields import Field
from coterie.config.hyperparameters import hyperparameters, table_name
from coterie.config.load import load
from coterie.config.partition import options_of
from coterie.config.resolved import tree
from coterie.config.tables import TABLES, keys_at_top, keys_of
from coterie.data import kinds, named
from coterie.models import zoo


def template(*, data: str, method: str, partition: str, model: str | None = None) -> str:
    """The text of an experiment file that passes its own check."""
    settings = {
        "data.source": data,
        "method": method,
        "partition.kind": partition,
        "model.name": model or fitting(data),
    }
    config = load(None, settings.items())
    values = tree(config)
    own = table_name(method)
    text = [
        "# An experiment. Check it: coterie check FILE. Run it: coterie run FILE",
        *keys(keys_at_top(), values),
    ]
    for name in TABLES:
        if name == "evaluate" and own in values:
            text += [
                "",
                f"[{toml.bare(own)}]",
                *keys(hyperparameters(method), values[own]),
            ]
        known = {k: f for k, f in keys_of(name).items() if k != "options"}
        parts = kinds.parts_of(config.partition.spec) if name == "partition" else ()
        if len(parts) == 1:
            known |= options_of(parts[0])
        text += ["", f"[{name}]", *keys(known, values[name])]
        for part in parts if len(parts) > 1 else ():
            text += [f"[{name}.{part.name}]", *keys(options_of(part), values[name][part.name])]
    return "\n".join(text) + "\n"


def fitting(source: str) -> str:
    """A network that takes the samples of a source: a small one for small images."""
    name = named.canonical(source)
    shape = named.NAMED[name].shape if name else ()
    return next((m for m in ("lenet5", "cnn-s") if shape and zoo.MODELS[m].fits(shape)), "mlp")


def keys(known: Mapping[str, Field], values: Mapping[str, Any]) -> Iterator[str]:
    """A line for each key, its comment behind it; what is not set is commented out."""
    lines = {}
    for key, field in known.items():
        value = values[key]
        shown = "..." if value is None else toml.inline(value)
        lines[f"{'# ' * (value is None)}{toml.bare(key)} = {shown}"] = field
    width = min(30, max(map(len, lines), default=0))
    for line, field in lines.items():
        yield f"{line:<{width}}  # {explained(field)}"


def explained(field: Field) -> str:
    """What a key is for; where its values are words, which."""
    words = describe(field.annotation) if get_origin(field.annotation) is Literal else ""
    return ": ".join(filter(None, (words, field.comment))) or describe(field.annotation)
