"""Where the time of one round goes, operator by operator: `python -m bench.profile W1`.

One epoch of every client in this process on one thread: the plain loop, then coterie as each of
its worker processes does it. Self time, so that the shares of a column add up.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch.profiler import ProfilerActivity, profile

from bench.contestant import Contestant
from bench.ours import Ours
from bench.plain import Plain
from bench.workloads import WORKLOADS


def shares(contestant: Contestant) -> tuple[float, dict[str, tuple[float, int]]]:
    """Seconds unobserved, and each operator's (self seconds, calls) under the profiler."""
    contestant.round(epochs=1)  # warm
    began = time.perf_counter()
    contestant.round(epochs=1)
    seconds = time.perf_counter() - began
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as seen:
        contestant.round(epochs=1)
    found = {e.key: (e.self_cpu_time_total / 1e6, e.count) for e in seen.key_averages()}
    return seconds, found


def show(name: str, seconds: float, found: dict[str, tuple[float, int]], top: int) -> None:
    """The operators that take most."""
    inside = sum(s for s, _ in found.values())
    print(f"{name}: {seconds:.3f} s (operators under the profiler: {inside:.3f} s)")
    for key, (s, calls) in sorted(found.items(), key=lambda item: -item[1][0])[:top]:
        print(f"  {s / inside:6.1%}  {s:8.3f} s  {calls:8,} x {s / calls * 1e6:7.1f} us  {key}")
    print()


def main() -> None:
    """Profile the plain loop and coterie on a workload."""
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--engine", default="auto", help="of coterie (default: auto)")
    parser.add_argument("--top", type=int, default=12)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    workload = WORKLOADS[asked.workload]
    ours = Ours(workload, asked.engine, workers=1)
    contestants: dict[str, Contestant] = {
        "plain": Plain(workload),
        f"ours, {ours.chosen}": ours,
    }
    for name, contestant in contestants.items():
        show(name, *shares(contestant), asked.top)


if __name__ == "__main__":
    main()
