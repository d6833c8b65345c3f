"""The doctor: is everything there that coterie needs, and does it fit together."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import typer

from coterie.cli import say
from coterie.cli.options import Json

CORE = ("torch", "numpy", "scipy", "scikit-learn", "safetensors", "pydantic", "typer", "rich")
MORE = ("pillow", "plotly")
EXTRAS = {
    "flower": "flwr",
    "ray": "ray",
    "hf": "datasets",
    "tensorboard": "tensorboard",
    "mlflow": "mlflow-skinny",
    "wandb": "wandb",
}


class Finding(NamedTuple):
    """One thing looked at: how it is, and what to do if that is not good."""

    what: str
    state: str
    good: bool = True
    fix: str = ""


def doctor(json: Json = False) -> None:
    """Look at this machine.

    Versions, threads, disk, data folders, packages that do not fit together.
    """
    findings = [*packages(), *extras(), *machine(), *folders()]
    bad = [f for f in findings if not f.good]
    if json:
        for f in findings:
            say.line(f._asdict())
    else:
        rows = [("ok" if f.good else "!!", f.what, f.state) for f in findings]
        say.result(say.table(("", "what", "state"), rows))
        for f in bad:
            say.label("fix", f"{f.what}: {f.fix}")
        say.label(
            "next", "coterie demo" if not bad else "mend what is marked !!, then `coterie doctor`"
        )
    if bad:
        raise typer.Exit(1)


def installed(package: str) -> str | None:
    """The version of a package, None if it is not there."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def packages() -> list[Finding]:
    """What coterie cannot do without, and whether torch can be imported at all."""
    found = [Finding("python", platform.python_version(), sys.version_info >= (3, 11))]
    for name in (*CORE, *MORE):
        state = installed(name)
        fix = "" if state else f"pip install {name}"
        found.append(Finding(name, state or "missing", state is not None, fix))
    fault = imports("torch")
    if fault:
        found.append(Finding("import torch", fault, False, "pip install --force-reinstall torch"))
    return found


def extras() -> list[Finding]:
    """What is optional; a torchvision built for another torch breaks whoever imports it."""
    found = []
    for extra, package in EXTRAS.items():
        state = installed(package)
        shown = f"{package} {state}" if state else f'not installed: pip install "coterie[{extra}]"'
        found.append(Finding(f"extra {extra}", shown))
    vision = installed("torchvision")
    if vision:
        fault = imports("torchvision")
        state = f"{vision}, does not import: {fault}" if fault else vision
        fix = f"pip uninstall torchvision (coterie needs none); torch is {installed('torch')}"
        found.append(Finding("torchvision", state, not fault, fix))
    else:
        found.append(Finding("torchvision", "not installed, and not needed"))
    if installed("flwr"):
        off = os.environ.get("FLWR_TELEMETRY_ENABLED") == "0"
        found.append(Finding("flwr telemetry", "off" if off else "on outside of coterie"))
    return found


def imports(package: str) -> str:
    """Why a package cannot be imported, tried in a process of its own; "" if it can."""
    if find_spec(package) is None:
        return "not found"
    done = subprocess.run(
        [sys.executable, "-c", f"import {package}"], capture_output=True, text=True, check=False
    )
    return done.stderr.strip().splitlines()[-1] if done.returncode and done.stderr.strip() else ""


def machine() -> list[Finding]:
    """Cores, threads and room on the disk."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = os.environ.get("OMP_NUM_THREADS")
    free = shutil.disk_usage(Path.cwd()).free
    return [
        Finding("cores", str(cores)),
        Finding("threads", f"OMP_NUM_THREADS = {threads}" if threads else "1 (engine.threads)"),
        Finding(
            "disk",
            f"{say.size(free)} free in {Path.cwd()}",
            free > 200e6,
            "make room, or run elsewhere: --out",
        ),
        Finding(
            "writing",
            "allowed here" if os.access(Path.cwd(), os.W_OK) else "not allowed here",
            os.access(Path.cwd(), os.W_OK),
            "change to a folder of yours, or name one with --out",
        ),
    ]


def folders() -> list[Finding]:
    """Where named sets are looked for, and which are there."""
    from coterie.data import named

    here = [n for n, e in named.NAMED.items() if e.embedded or named.find(n)]
    places = ", ".join(f"{p}{'' if p.is_dir() else ' (absent)'}" for p in named.folders())
    wanted = os.environ.get("COTERIE_DATA", "")
    lost = [p for p in wanted.split(os.pathsep) if p and not Path(p).expanduser().is_dir()]
    fix = f"COTERIE_DATA names {', '.join(lost)}, which is not a folder"
    return [
        Finding("data folders", places, not lost, fix),
        Finding("data sets", ", ".join(here)),
    ]
