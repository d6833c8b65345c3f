"""The contestants, and an environment for each: other libraries get one of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".bench"
TORCH = "torch==2.13.0"  # the same for all that use it


@dataclass(frozen=True)
class Entry:
    """One contestant: what runs it, and what it needs."""

    name: str
    module: str
    packages: tuple[str, ...] = ()  # empty: it runs in this environment
    same_order: bool = True  # it sees the samples in the order of the plain loop
    studies: bool = False  # whether the study is written in it, too
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def python(self) -> Path:
        """The interpreter that runs it."""
        return HOME / self.name / "bin" / "python" if self.packages else Path(sys.executable)

    def install(self) -> str:
        """Make its environment, if it is not there already; why it cannot be made, or nothing."""
        wanted = "\n".join(self.packages)
        done = HOME / self.name / "installed.txt"
        if not self.packages or (done.exists() and done.read_text() == wanted):
            return ""
        HOME.mkdir(exist_ok=True)
        constraints = HOME / "constraints.txt"
        constraints.write_text(TORCH + "\n")
        pip = [str(self.python), "-m", "pip", "install", "--quiet", "-c", str(constraints)]
        for command in (
            [sys.executable, "-m", "venv", str(HOME / self.name)],
            [*pip, *self.packages],
        ):
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            if ran.returncode:
                said = (ran.stderr or ran.stdout).strip().splitlines()
                return said[-1] if said else f"exit code {ran.returncode}"
        done.write_text(wanted)
        return ""

    def variables(self) -> dict[str, str]:
        """Its environment variables: numbers of threads set by whoever started us do not count."""
        mine = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
        return mine | {"PYTHONPATH": str(ROOT)} | self.environment


QUIET = {  # nothing is looked up or reported outside
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_HOME": str(HOME / "flwr"),
    "RAY_USAGE_STATS_ENABLED": "0",
}
ENTRIES = {
    e.name: e
    for e in (
        Entry("plain", "bench.plain", studies=True),
        Entry("ours", "bench.ours", studies=True),
        Entry(
            "flower",
            "bench.peers.flower",
            ("flwr[simulation]==1.41.0", TORCH),
            studies=True,
            environment=QUIET,
        ),
        Entry("pfl", "bench.peers.pfl_research", ("pfl[pytorch]==0.6.0", TORCH), same_order=False),
        Entry(
            "fedjax",
            "bench.peers.fedjax",
            ("fedjax==0.0.17", "jax==0.10.2"),
            same_order=False,
            environment={"JAX_PLATFORMS": "cpu"},
        ),
    )
}
