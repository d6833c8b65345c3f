"""Where runs are, told from the names in their folders: nothing heavy is imported to look."""

from __future__ import annotations

from pathlib import Path

from coterie.core.errors import CheckpointError
from coterie.core.shell import command

RUN, COMPARISON = "run.toml", "compare.toml"  # the file that every folder of the kind has
FEDERATION = "federation.json"  # in the folder of a run whose clients are on other machines


def expect_run(path: Path) -> None:
    """Refuse a folder that no run was started in."""
    if not (path / RUN).exists():
        raise no_run(path, f"no {RUN}")


def reportable(path: Path) -> list[Path]:
    """What there is to show: the folder itself, or the runs and comparisons right in it."""
    found = [p for p in (path, *inside(path)) if (p / RUN).exists() or (p / COMPARISON).exists()]
    if not found:
        raise no_run(path, f"neither {RUN} nor {COMPARISON}")
    return [path] if found[0] == path else found


def inside(path: Path) -> list[Path]:
    """The folders right in a folder, by name; none if it is none."""
    return sorted(p for p in path.iterdir() if p.is_dir()) if path.is_dir() else []


def no_run(path: Path, has: str) -> CheckpointError:
    """The error about a folder that is not a run's; it names the runs in it, if there are."""
    fix = "name a folder that `coterie run` wrote, for example one under runs/"
    if runs := [str(p) for p in inside(path) if (p / RUN).exists()]:
        fix = f"name one of the runs in it: {', '.join(runs[:5])}{', ...' * (len(runs) > 5)}"
    elif (path / COMPARISON).exists():
        fix = f"it holds a comparison: `{command('report', path)}` shows it"
    why = f"it has {has}" if path.exists() else "it does not exist"
    return CheckpointError(f"{path} is not the folder of a run", code="K006", why=why, fix=fix)
