"""The scores as a table, for a terminal or a page of the documentation."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import torch

from bench.race import Score
from bench.workloads import Study, Workload

HEADER = (
    *("", "s / round", "least", "most", "x plain", "x fastest peer"),
    *("of the f32 peak", "PSS MB", "away from plain", "loss"),
)
OUR_OWN = ("plain", "ours")


def peak_flops() -> float:
    """Multiplications and additions a second in float32, on all cores: a large matrix product."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    a = torch.rand(3072, 3072)
    best = float("inf")
    for _ in range(6):
        began = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - began)
    return 2 * 3072**3 / best


def machine(peak: float) -> str:
    """What it was measured on."""
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return (
        f"{len(os.sched_getaffinity(0))} cores ({model}), "
        f"{peak / 1e9:.0f} GFLOP/s in float32 together; Python {platform.python_version()}; "
        f"load when it began: {os.getloadavg()[0]:.2f}"
    )


def cells(workload: Workload, scores: dict[str, Score], peak: float) -> list[list[str]]:
    """A row for each contestant that took part."""
    plain = scores["plain"].median if "plain" in scores else float("nan")
    peers = [s.median for s in scores.values() if s.seconds and s.name not in OUR_OWN]
    fastest = min(peers, default=float("nan"))
    return [
        [
            name,
            number(s.median, ".3f"),
            number(min(s.seconds), ".3f"),
            number(max(s.seconds), ".3f"),
            number(plain / s.median, ".2f"),
            number(fastest / s.median, ".2f"),
            number(workload.flops / s.median / peak, ".1%"),
            number(s.peak / 1e6, ".0f"),
            number(s.away, ".1e"),
            number(s.loss, ".3f"),
        ]
        for name, s in scores.items()
        if s.seconds
    ]


def number(value: float, form: str) -> str:
    """A figure, or a dash where there is none."""
    return "-" if value != value else format(value, form)


def title(workload: Workload) -> str:
    """What a round of it is."""
    w = workload
    return (
        f"{w.name}: {w.summary}; {w.who}, "
        f"{w.epochs} epoch{'s' * (w.epochs > 1)}, batch {w.batch} "
        f"({w.steps:,} steps, {w.flops / 1e9:,.0f} GFLOP)"
    )


def notes(workload: Workload, scores: dict[str, Score]) -> list[str]:
    """Who ran how, and who had trouble."""
    lines = []
    for name, s in scores.items():
        if how := s.about.get("how"):
            lines.append(f"{name}: {how}")
        if isinstance(workload, Study) and s.seconds:
            lines.append(f"{name}: {s.first:.2f} s for round 0, in which all train, and round 1")
        if s.trouble:
            lines.append(f"{name}: {'FAILED' if not s.seconds else 'DOUBTFUL'}: {s.trouble}")
    return lines


def text(workload: Workload, scores: dict[str, Score], peak: float) -> str:
    """For a terminal."""
    rows = [list(HEADER), *cells(workload, scores, peak)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
    return "\n".join([title(workload), *lines, *notes(workload, scores), ""])


def markdown(workload: Workload, scores: dict[str, Score], peak: float) -> str:
    """For a page."""
    rows = [list(HEADER), ["---", *["---:"] * (len(HEADER) - 1)], *cells(workload, scores, peak)]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    told = [f"- {line}" for line in notes(workload, scores)]
    return "\n".join([f"### {title(workload)}", "", *lines, "", *told, *([""] if told else [])])
