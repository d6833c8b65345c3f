"""An experiment written out: with every value, where each came from, or as a commented file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Literal, get_origin

from coterie.config import tables, toml
from coterie.config.fields import Field
from coterie.config.load import load
from coterie.config.schema import Config
from coterie.config.tables import TABLES, TOP
from coterie.config.validate import describe
from coterie.core.errors import ConfigError
from coterie.core.suggest import closest
from coterie.data import kinds, named
from coterie.models import zoo


def tree(config: Config) -> dict[str, Any]:
    """The tables of an experiment file that means this experiment."""
    out: dict[str, Any] = {key: getattr(config, key) for key in TOP}
    for name in TABLES:
        table = out[name] = asdict(getattr(config, name))
        if name == "partition" or not table.get("options", True):
            table |= table.pop("options")
        if name == "train" and config.hyper:
            out[tables.table_name(config.method)] = dict(config.hyper)
    return out


def resolved(config: Config) -> str:
    """The experiment as TOML with every default, which loads back to an equal experiment."""
    notes = "".join(f"# {note}\n" for note in config.notes)
    return notes + toml.write(tree(config))


def dotted_keys(config: Config) -> list[str]:
    """Every key of an experiment, with its tables before it."""
    return [".".join(path) for path in toml.leaves(tree(config))]


def explain(config: Config, key: str) -> str:
    """A key's value and where it came from.

    >>> from coterie.config.load import loads
    >>> explain(loads("seed = 7"), "seed")
    'seed = 7    experiment.toml:1'
    >>> explain(loads("seed = 7"), "train.lr")
    'train.lr = 0.05    default'
    """
    found: Any = tree(config)
    for part in key.split("."):
        if not isinstance(found, Mapping) or part not in found:
            known = dotted_keys(config)
            similar = closest(key, known) or next((k for k in known if k.endswith(f".{key}")), None)
            raise ConfigError(
                f"there is no key {key}",
                code="C014",
                fix=f"a similar key exists: {similar}" if similar else f"one of {', '.join(known)}",
            )
        found = found[part]
    if isinstance(found, Mapping):
        return "\n".join(explain(config, f"{key}.{k}") for k in found)
    shown = "not set" if found is None else toml.inline(found)
    return f"{key} = {shown}    {config.origins.get(key, 'default')}"


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
    text = [
        "# An experiment. Check it: coterie check FILE. Run it: coterie run FILE",
        *keys(tables.keys_at_top(), values),
    ]
    for name, table in values.items():
        if name in TOP:
            continue
        known = tables.keys_of(name) if name in TABLES else tables.hyperparameters(method)
        if name in TABLES:
            known.pop("options", None)  # there are none
        parts = kinds.parts_of(config.partition.spec) if name == "partition" else ()
        if len(parts) == 1:
            known |= tables.options_of(parts[0])
        text += ["", f"[{toml.bare(name)}]", *keys(known, table)]
        for part in parts if len(parts) > 1 else ():
            text += [f"[{name}.{part.name}]", *keys(tables.options_of(part), table[part.name])]
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
        value = values.get(key, field.default)  # a kind leaves some of its own unsaid
        shown = "..." if value is None else toml.inline(value)
        lines[f"{'# ' * (value is None)}{toml.bare(key)} = {shown}"] = field
    width = min(30, max(map(len, lines), default=0))
    for line, field in lines.items():
        yield f"{line:<{width}}  # {explained(field)}"


def explained(field: Field) -> str:
    """What a key is for; where its values are words, which."""
    words = describe(field.annotation) if get_origin(field.annotation) is Literal else ""
    return ": ".join(filter(None, (words, field.comment))) or describe(field.annotation)
