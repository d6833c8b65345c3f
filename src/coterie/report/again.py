"""How to do it again: commands that work from any folder, and give the same numbers."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from coterie.core.shell import command
from coterie.report.run_data import RunData
from coterie.runs.comparison import Comparison
from coterie.runs.reading import Event


def command_of_run(run: RunData) -> str:
    """What to type to get the same run again."""
    if not run.folder:
        return "coterie.fit(...)  # it was run from Python, without a folder"
    if run.config.get("started_from") == "python":
        out = str(run.folder)
        return f"coterie.fit(..., out={out!r}, resume=True)  # from the script that made it"
    home = started_in(run.events)
    folder = seen_from(home, run.folder)
    if run.remote:
        stood = run.happened("serving")
        if not stood:
            return (
                "# not known: a Flower app, or a version that did not note where the server stood"
            )
        words = ["serve", f"{folder}/run.toml", *address(stood[-1])]
        again = typed(home, [*words, "--out", f"{folder}-again", *own_code([run.config])])
        return f"{again}\n# and the same clients join it, or wait for it since the last run"
    words = ["run", f"{folder}/run.toml", *pinned(run.config, [run.notes])]
    return typed(home, [*words, "--out", f"{folder}-again", *own_code([run.config])])


def address(stood: Event) -> list[str]:
    """The options by which a server stands where one stood."""
    certs = ["--certs", str(stood["certs"])] if stood["certs"] else ["--insecure"]
    return [*certs, "--host", str(stood["host"]), "--port", str(stood["port"])]


def commands_of_comparison(found: Comparison) -> dict[str, str]:
    """What to type to get the same comparison again, and to go on with one that was stopped."""
    if found.asked.get("started_from") == "python":
        return {"Command": "coterie.compare(...)  # from the script that made it"}
    home = started_in(event for cell in found.cells for event in cell.events)
    folder, made = seen_from(home, found.folder), list(found.asked["experiments"].values())
    words, code = ["compare", f"{folder}/compare.toml"], own_code(made)
    engine = pinned(made[0], [cell.notes for cell in found.cells if cell.done])
    again = typed(home, [*words, *engine, "--out", f"{folder}-again", *code])
    on = typed(home, [*words, "--out", folder, *code])
    return {"Command": again} | ({"To go on after a stop": on} if found.missing else {})


def started_in(events: Iterable[Event]) -> Path | None:
    """The folder a run was started in, from which its paths count; None if it is not there now."""
    told = next((e["cwd"] for e in events if e["event"] == "start" and "cwd" in e), None)
    return Path(told) if told and Path(told).is_dir() else None


def seen_from(home: Path | None, folder: Path) -> str:
    """A folder as it is called from another: by its whole path if it is not below it."""
    path = folder.resolve()
    return str(path.relative_to(home) if home and path.is_relative_to(home) else path)


def typed(home: Path | None, words: Iterable[str]) -> str:
    """A command line; it goes first to where its paths count from."""
    return (f"cd {shlex.quote(str(home))} && " if home else "") + command(*words)


def pinned(settings: Mapping[str, Any], notes: Iterable[Mapping[str, Any]]) -> list[str]:
    """The engine that was chosen, if that was left open: another machine might choose another."""
    chosen = {note.get("engine") for note in notes}
    open_ = settings.get("engine", {}).get("name") == "auto"
    return [f"engine.name={name}" for name in chosen if name and open_ and len(chosen) == 1]


def own_code(experiments: Iterable[Mapping[str, Any]]) -> list[str]:
    """The flag that is needed where a method or network is not coterie's."""
    named = [n for e in experiments for n in (e.get("method"), e.get("model", {}).get("name"))]
    return ["--allow-code"] * any(":" in str(name) for name in named)
