"""Equal terms: one comparison in a folder, and runs that share clients and initial weights."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coterie.config import toml
from coterie.core import storage
from coterie.core.errors import CheckpointError, ConfigError
from coterie.runs.comparison import Comparison, cell_name
from coterie.runs.records import RunFolder
from coterie.studies import experiment


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder, so that no second comparison runs in it at the same time."""
    storage.make_folder(folder)
    with RunFolder(folder) as hold:
        hold.hold()
        yield


def record_request(folder: Path, asked: Mapping[str, Any]) -> None:
    """Write down what was asked, or refuse to go on with something else."""
    file, text = folder / "compare.toml", toml.write(asked)
    if not file.exists():
        names = [cell_name(label, 0) for label in asked["methods"]]
        if same := next((n for n in names if names.count(n) > 1), None):
            what = f"two methods would share the folder {same.removesuffix('-seed0')}"
            raise ConfigError(what, code="C017", fix="write their settings in another way")
        storage.replace_file(file, text.encode())
        return
    then = experiment.flat(tomllib.loads(file.read_text()))
    now = experiment.flat(tomllib.loads(text))
    lines = differences(then, now, list(asked["methods"]))
    if lines:
        raise CheckpointError(
            f"{folder} holds another comparison",
            code="K012",
            where="\n".join(lines),
            why="the runs to come would not be comparable with the runs that are there",
            fix="put the settings back, or choose another folder with --out",
        )


def differences(then: Mapping[str, Any], now: Mapping[str, Any], methods: list[str]) -> list[str]:
    """What differs, key by key; a key that differs alike for every method is told once."""
    found: dict[tuple[str, str], list[str]] = {}
    for key in dict.fromkeys([*then, *now]):
        if then.get(key) == now.get(key) or ".output." in key:
            continue
        label = next((m for m in methods if key.startswith(f"experiments.{m}.")), "")
        short = key.removeprefix(f"experiments.{label}.") if label else key
        found.setdefault((short, f"was {then.get(key)!r}, is {now.get(key)!r}"), []).append(label)
    if any(key in ("methods", "seeds") for key, _ in found):  # the rest follows from it
        found = {k: v for k, v in found.items() if k[0] in ("methods", "seeds")}
    everybody = ({""}, set(methods))
    return [
        f"{key}{'' if set(who) in everybody else ' of ' + ', '.join(who)}: {text}"
        for (key, text), who in found.items()
    ]


def expect_equal_terms(comparison: Comparison) -> None:
    """Refuse cells of one seed whose clients or initial weights are not the same."""
    for seed in comparison.seeds:
        cells = [c for c in comparison.cells if c.seed == seed and c.done]
        for what in ("population", "initial"):
            kinds = {c.facts[what] for c in cells}
            if len(kinds) > 1:
                raise CheckpointError(
                    f"the runs of seed {seed} do not share their "
                    + {"population": "clients", "initial": "initial weights"}[what],
                    code="K013",
                    where="\n".join(f"{c.folder.name}: {c.facts[what][:16]}" for c in cells),
                    fix="start the comparison again in another folder with --out",
                )
