"""The tables of an experiment file, and the keys that each of them may hold."""

from __future__ import annotations

from typing import Any

from coterie.config import schema
from coterie.config.fields import Field, fields
from coterie.data import kinds

TABLES: dict[str, type[Any]] = {
    "data": schema.Data,
    "partition": schema.Partition,
    "model": schema.Model,
    "train": schema.Train,
    "evaluate": schema.Evaluate,
    "newcomers": schema.Newcomers,
    "engine": schema.Engine,
    "output": schema.Output,
}
TOP = ("method", "seed")  # what stands above all tables


def keys_at_top() -> dict[str, Field]:
    """The keys that stand above all tables."""
    known = fields(schema.__name__, "Config")
    return {key: known[key] for key in TOP}


def keys_of(table: str) -> dict[str, Field]:
    """The keys of one table; in [partition] those of the kind stand beside them.

    >>> list(keys_of("partition"))
    ['kind', 'clients']
    """
    known = dict(fields(schema.__name__, TABLES[table].__name__))
    if table == "partition":
        del known["options"]
    return known


def keys_of_kind(kind: type[kinds.Kind]) -> dict[str, Field]:
    """The keys of one kind of partition.

    >>> list(keys_of_kind(kinds.Shards))
    ['per_client']
    """
    return fields(kinds.__name__, kind.__name__)


def tables_with(key: str) -> list[str]:
    """The tables that have a key of this name."""
    return [table for table in TABLES if key in keys_of(table)]
