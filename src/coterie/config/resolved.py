"""An experiment written out: every key with its value, and where the value came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from coterie.config import toml
from coterie.config.hyperparameters import table_name
from coterie.config.schema import Config
from coterie.core.errors import ConfigError
from coterie.core.suggest import closest


def tree(config: Config) -> dict[str, Any]:
    """The tables of an experiment file that means this experiment."""
    own = table_name(config.method)
    partition = asdict(config.partition)
    options = partition.pop("options")
    data, model = asdict(config.data), asdict(config.model)
    for table in (data, model):
        if not table["options"]:
            del table["options"]
    return {
        "method": config.method,
        "seed": config.seed,
        "data": data,
        "partition": {**partition, **options},
        "model": model,
        "train": asdict(config.train),
        **({own: dict(config.hyper)} if config.hyper else {}),
        "evaluate": asdict(config.evaluate),
        "newcomers": asdict(config.newcomers),
        "engine": asdict(config.engine),
        "output": asdict(config.output),
    }


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
