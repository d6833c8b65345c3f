"""One experiment for each of several methods: the same file, read once for every method.

A method of a comparison is written `name`, or `name:key=value:key=value` with settings that it has
alone: a key of its own table, `train.key`, or `server.key`.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coterie.config import source
from coterie.config.load import resolve
from coterie.config.resolved import tree
from coterie.config.schema import Config
from coterie.config.source import Written
from coterie.config.tables import table_name
from coterie.core.errors import ConfigError

FORMAT = 1


@dataclass(frozen=True)
class Grid:
    """Methods x seeds, each an experiment with every default resolved."""

    experiments: Mapping[str, Config]  # by label; their seed is the first one
    seeds: tuple[int, ...]
    tuning: Mapping[str, Any] | None = None  # how the experiments' settings were chosen, if so

    def config(self, label: str, seed: int) -> Config:
        """The experiment of one cell."""
        return replace(self.experiments[label], seed=seed)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reader of the file should know, each note once."""
        return tuple(dict.fromkeys(n for c in self.experiments.values() for n in c.notes))

    def asked(self) -> dict[str, Any]:
        """The comparison as plain values, which compare.toml holds."""
        first = next(iter(self.experiments.values()))
        return {
            "format": FORMAT,
            "started_from": "file",
            "methods": list(self.experiments),
            "seeds": list(self.seeds),
            "last_k": first.evaluate.last_k,
            "target": first.evaluate.target,
            "tuning": self.tuning,
            "experiments": {
                label: {k: v for k, v in tree(config).items() if k != "seed"}
                for label, config in self.experiments.items()
            },
        }


def grid(
    file: Path | str | None = None,
    settings: Iterable[tuple[str, Any]] = (),
    methods: Sequence[str] = (),
    seeds: int | Sequence[int] | None = None,
    *,
    allow_code: bool = False,
) -> Grid:
    """The experiments of a file for these methods, or else for those that the file lists.

    `seeds` is how many, counted from the file's own, or the seeds themselves; 5 if not given. The
    file may be the compare.toml of a comparison, which has its own methods and seeds. Code that
    the file itself names is imported only with `allow_code`.
    """
    written = source.read(file) if file is not None else Written(source.COMMAND_LINE)
    if "experiments" in written.tree:
        return recorded(written, list(settings), methods, seeds, allow_code)
    seeds = 5 if seeds is None else seeds
    listed = written.tree.get("method")
    if methods:
        written.places["method",] = source.COMMAND_LINE
    elif isinstance(listed, tuple):
        methods = [str(m) for m in listed]
    expect_several(methods, written.name)
    given = list(settings)
    if any(key == "method" for key, _ in given):
        raise refused("method is given as a setting", "name the methods with --methods")
    named = [listed] if isinstance(listed, str) else [str(m) for m in listed or ()]
    known = {table_name(split(m)[0]) for m in (*methods, *named)}
    made = {m: experiment_of(written, given, m, known, allow_code) for m in methods}
    public = max(config.data.public or 0 for config in made.values())
    if any((config.data.public or 0) != public for config in made.values()):
        # A server that holds samples leaves fewer to the clients: then it must in every run.
        given.append(("data.public", public))
        made = {m: experiment_of(written, given, m, known, allow_code) for m in methods}
    return seeded(made, seeds)


def seeded(made: Mapping[str, Config], seeds: int | Sequence[int]) -> Grid:
    """These experiments with each of these seeds."""
    start = next(iter(made.values())).seed
    chosen = tuple(range(start, start + seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not chosen or len(set(chosen)) < len(chosen) or min(chosen) < 0:
        raise refused(f"the seeds are {list(chosen)}", "give one or more, each once: --seeds 5")
    return Grid({m: replace(config, seed=chosen[0]) for m, config in made.items()}, chosen)


def recorded(
    written: Written,
    settings: list[tuple[str, Any]],
    methods: Sequence[str],
    seeds: int | Sequence[int] | None,
    allow_code: bool,
) -> Grid:
    """The experiments of a comparison's compare.toml, or of some of its methods, with its seeds."""
    known, asked = written.tree["experiments"], written.tree
    if asked.get("started_from") == "python":
        fix = "start it again from the script that made it, or write an experiment file"
        raise refused(f"{written.name} describes a comparison that was run from Python", fix)
    chosen = list(methods or asked["methods"])
    expect_several(chosen, written.name)
    if strange := next((m for m in chosen if m not in known), None):
        raise refused(f"{written.name} has no {strange}", f"its methods are {', '.join(known)}")
    made = {}
    for label in chosen:
        above = ("experiments", label)
        places = {p[2:]: line for p, line in written.places.items() if p[:2] == above}
        mine = Written(written.name, copy.deepcopy(known[label]), places)
        made[label] = resolve(mine, settings, allow_code=allow_code)
    return seeded(made, asked["seeds"] if seeds is None else seeds)


def experiment_of(
    written: Written,
    settings: list[tuple[str, Any]],
    label: str,
    known: set[str],
    allow_code: bool = False,
) -> Config:
    """The experiment of one method: without the tables of the others."""
    method, own = split(label)
    others = known - {table_name(method)}
    mine = copy.deepcopy(written)
    mine.tree = {k: v for k, v in mine.tree.items() if k not in others}
    mine.tree["method"] = method
    shared = [(k, v) for k, v in settings if k.split(".")[0] not in others]
    return resolve(mine, [*shared, *own], allow_code=allow_code)


def split(label: str) -> tuple[str, list[tuple[str, Any]]]:
    """A method of a comparison and the settings it has alone, with their tables.

    >>> split("fedclust:clusters=4:train.lr=0.1")
    ('fedclust', [('fedclust.clusters', 4), ('train.lr', 0.1)])
    >>> split("fedavg:server.optimiser=adam")
    ('fedavg', [('server.optimiser', 'adam')])
    >>> split("mine.methods:FedMine")
    ('mine.methods:FedMine', [])
    """
    method, *settings = re.split(r":(?=[\w-]+(?:\.[\w-]+)*=)", label)
    table, own = table_name(method), []
    for text in settings:
        key, value = source.assignment(text)
        home = key.split(".")[0] if "." in key else table
        if home not in ("train", "server", table):
            raise refused(
                f"{label} sets {key} for one method alone",
                f"only [train], [server] and [{table}] may differ; set {key} for all: {text}",
            )
        own.append((key if "." in key else f"{table}.{key}", value))
    return method, own


def listed(text: str) -> list[str]:
    """The methods of a command line: separated by commas, but not by those inside brackets.

    >>> listed("fedavg, fedclust:layers=[1,2]")
    ['fedavg', 'fedclust:layers=[1,2]']
    """
    return [part.strip() for part in re.split(r",(?![^\[]*\])", text) if part.strip()]


def expect_several(methods: Sequence[str], name: str) -> None:
    """Refuse fewer than two methods, and the same one twice."""
    if twice := next((m for m in methods if list(methods).count(m) > 1), None):
        fix = f"give one of them another setting: {twice}:key=value"
        raise refused(f"{twice} is named twice", fix)
    if len(methods) < 2:
        found = f"only {methods[0]}" if methods else "no methods"
        raise refused(
            f"{name} names {found} to compare",
            'add --methods fedavg,fedclust, or write method = ["fedavg", "fedclust"] in the file',
        )


def refused(what: str, fix: str) -> ConfigError:
    """A comparison that cannot be meant."""
    return ConfigError(what, code="C017", fix=fix)
