"""Seconds per round of coterie beside the plain PyTorch loop and other libraries.

Every contestant is a process of its own that has started, imported and warmed up before it is
measured; the warm-up is a round of one epoch, after which all models are compared with the plain
loop's. Then they take turns. Medians; without evaluation, but for the study (W6): its rounds have
their tests and records, and its warm-up is rounds 0 and 1. Memory is that of all processes of a
contestant, shared pages once, while it warms up and after each round.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from bench import table
from bench.environments import ENTRIES
from bench.race import Score, race
from bench.workloads import WORKLOADS, Study


def names(known: Iterable[str]) -> Callable[[str], list[str]]:
    """A parser of several names with commas between them."""

    def parse(text: str) -> list[str]:
        found = text.split(",")
        if unknown := [name for name in found if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
        return found

    return parse


def main() -> int:
    """Run the comparison; 1 if coterie failed or computes something else."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--workloads", type=names(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--contestants", type=names(ENTRIES), default=list(ENTRIES))
    parser.add_argument("--repeat", type=int, help="counted rounds (default: by the workload)")
    parser.add_argument("--engine", default="auto", help="of coterie (default: auto)")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    parser.add_argument("--write", type=Path, help="write the tables to this file, as Markdown")
    asked = parser.parse_args()

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    entries, remarks = {}, []
    for name in asked.contestants:
        say(f"{name}: preparing its environment")
        if why := ENTRIES[name].install():
            remarks.append(f"{name} did not install: {why}")
            say(remarks[-1])
        else:
            entries[name] = ENTRIES[name]
    peak = table.peak_flops()
    remarks.insert(0, table.machine(peak))
    say(remarks[0])
    results: dict[str, dict[str, Score]] = {}
    for name in asked.workloads:
        workload = WORKLOADS[name]
        options = {"ours": [asked.engine]}
        able = {n: e for n, e in entries.items() if e.studies or not isinstance(workload, Study)}
        results[name] = race(workload, able, asked.repeat or workload.repeat, options, say)
        shown = table.markdown if asked.markdown else table.text
        print(shown(workload, results[name], peak), flush=True)
    versions = {n: s.about["versions"] for r in results.values() for n, s in r.items() if s.about}
    remarks += [f"{name}: {version}" for name, version in versions.items()]
    print("\n".join(remarks))
    if asked.write:
        tables = [table.markdown(WORKLOADS[name], r, peak) for name, r in results.items()]
        asked.write.write_text("\n".join([*(f"- {line}" for line in remarks), "", *tables]))
    return int(any(r["ours"].trouble for r in results.values() if "ours" in r))


if __name__ == "__main__":
    sys.exit(main())
