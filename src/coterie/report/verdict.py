"""What came out of a run, in a sentence and a few numbers, and everything a reader must know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from coterie.core.units import count, percent, seconds, size
from coterie.report.charts.accuracy import REFERENCE
from coterie.report.run_data import RunData
from coterie.runs.statistics import interval


class Tile(NamedTuple):
    """One of the large numbers at the top of the page, with a word above it and a note below."""

    label: str
    value: str
    note: str = ""


def sentence(run: RunData) -> str:
    """The verdict in a line."""
    final = tested(run)
    if not len(final):
        return f"{run.method} has not been tested yet."
    found = f"{run.method}: {percent(float(final.mean()))} mean accuracy over {behind(run)}"
    found += f" after {count(int(run.tested[run.end(run.tested)]), 'round')}{chosen(run)}"
    own = {"personal": "each with a model of its own", "shared": "with one model for all"}
    clusters = f"in {count(len(run.clusters), 'cluster')}"
    return f"{found}, {own.get(run.kind, clusters)}{gained(run)}."


def chosen(run: RunData) -> str:
    """That another round than the last was taken, and by what; nothing where none was chosen."""
    if run.taken is None:
        return ""
    return f" of {run.taken['of']}, the best on validation data by {run.taken['metric']}"


def gained(run: RunData) -> str:
    """How much better or worse than the reference runs beside it, and for how many clients."""
    told = ""
    for name in ("fedavg", "local"):
        gain = run.final - run.baselines.get(name, np.nan)
        gain = gain[~np.isnan(gain)]
        if len(gain):
            better, points = int((gain > 0).sum()), 100 * float(gain.mean())
            told += f"; {points:+.1f} points over {REFERENCE[name]}, better for {better:,} of "
            told += count(len(gain), "client")
    return told


def tiles(run: RunData) -> list[Tile]:
    """Accuracy, the worst tenth, clusters, time, bytes."""
    final, out = tested(run), []
    if len(final):
        half = interval(final.tolist()).half
        wide = f"± {100 * half:.1f}" if half is not None and half == half else ""
        out += [
            Tile(
                "mean accuracy", percent(float(final.mean())), f"{wide} (95 %, over {behind(run)})"
            ),
            Tile(
                "worst tenth",
                percent(run.value("accuracy_bottom_10pct")),
                f"worst client {percent(float(final.min()))}",
            ),
        ]
    if run.clustered and len(run.clusters):
        several = run.group is not None and len(np.unique(run.planted)) > 1
        several = several and len(run.series("ari", "clusters").values) > 0
        note = (
            f"ARI {run.value('ari', 'clusters'):.2f} with the planted groups"
            if several
            else "no groups planted"
        )
        out.append(Tile("clusters", f"{len(run.clusters)}", note))
    down, up = float(run.down.sum()), float(run.up.sum())
    out.append(Tile("sent", size(down + up), f"{size(up)} up, {size(down)} down"))
    spent = [e["seconds"] for e in run.round_events.values() if "seconds" in e]
    if spent:
        out.append(Tile("time", seconds(sum(spent)), count(len(spent) - 1, "round")))
    return out


def behind(run: RunData) -> str:
    """How many clients the last mean is of, and of how many if somebody is missing.

    Who never had an accuracy has no test samples, and is told of elsewhere.
    """
    here, away = len(tested(run)), int(run.absent[run.end(run.tested)].sum())
    if run.fills:
        return count(here, "client") + f" ({away:,} by the last known value)" * bool(away)
    return f"{here:,} of {here + away:,} clients" if away else count(here, "client")


def tested(run: RunData) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The last accuracies of those that have one."""
    return run.final[~np.isnan(run.final)]


def warnings(run: RunData) -> list[str]:
    """Everything that went other than planned; nothing is left out silently."""
    return [text for find in FOUND for text in find(run)]


def unfinished(run: RunData) -> Iterator[str]:
    """A run that is still going, or stopped."""
    if not run.done and len(run.rounds):
        yield f"The run has not finished: round {run.rounds[-1]} of {run.planned} is the last."
    for e in run.happened("resume"):
        yield f"The run was resumed after round {e['round']}."


def refused(run: RunData) -> Iterator[str]:
    """Answers that were not used, and clients that never answered."""
    if events := run.happened("rejected"):
        who = Counter(str(e["client"]) for e in events)
        yield f"{count(len(events), 'reply', 'replies')} rejected, from {listed(list(who))}."
    silent = ((run.down > 0) & (run.up == 0)).sum(0)
    if silent.any() and run.up.any():
        some = [run.clients[i] for i in np.flatnonzero(silent)]
        yield f"Asked without an answer in some round: {listed(some)}."
    never = [run.clients[i] for i in np.flatnonzero((run.down + run.up).sum(0) == 0)]
    if never and run.down.any():
        yield f"Never took part: {listed(never)}."


def homeless(run: RunData) -> Iterator[str]:
    """Clients without a model, and models without a client."""
    if len(run.assign):
        without = [run.clients[i] for i in np.flatnonzero(run.held < 0)]
        if without:
            yield f"Without a model at the end: {listed(without)}."
    dormant = run.models - len(run.clusters)
    if run.models and dormant > 0 and run.clustered:
        word = "cluster is" if dormant == 1 else "clusters are"
        yield f"{dormant} of {run.models} {word} dormant: nobody holds that model at the end."
    alone = [c for c in run.clusters.tolist() if (run.held == c).sum() == 1]
    if alone and run.clustered:
        yield f"{count(len(alone), 'cluster has', 'clusters have')} a single client."


def untested(run: RunData) -> Iterator[str]:
    """Clients that no number is about, and those that some means leave out."""
    if not len(run.tested):
        return
    never = np.isnan(run.accuracy[run.stage]).all(0) & (run.held >= 0)
    if never.any():
        yield f"No test samples, so no accuracy: {listed(names(run, never))}."
    rounds = int(run.absent.any(1).sum())
    if rounds:
        who = listed(names(run, run.absent.any(0)))
        counted_by = "counted by the last known value" if run.fills else "left out of the mean"
        yield f"Not tested in some of {rounds:,} rounds and {counted_by}: {who}."
    if (missing := run.absent[run.end(run.tested)]).any():
        yield f"Not tested after the last round: {listed(names(run, missing))}."


def names(run: RunData, some: Any) -> list[str]:
    """The names of some clients."""
    return [run.clients[i] for i in np.flatnonzero(some)]


def told(run: RunData) -> Iterator[str]:
    """What the run itself warned of, each once."""
    yield from dict.fromkeys([*run.amiss, *(str(e["text"]) for e in run.happened("warning"))])


def replaced(run: RunData) -> Iterator[str]:
    """Workers that ended or froze, in whose place others did the work."""
    if events := run.happened("replaced"):
        yield f"{count(len(events), 'worker was', 'workers were')} replaced: {events[-1]['text']}."


def held_back(run: RunData) -> Iterator[str]:
    """Clients that count for less than the samples they declare."""
    if who := dict.fromkeys(str(e["client"]) for e in run.happened("capped")):
        which = "Counted for less than the samples declared (engine.max_weight_share)"
        yield f"{which}: {listed(list(who))}."


def changed(run: RunData) -> Iterator[str]:
    """Clients that came late, and samples that changed hands."""
    if who := [str(name) for e in run.happened("arrived") for name in e["clients"]]:
        yield f"Came while the training went on: {listed(list(dict.fromkeys(who)))}."
    if events := run.happened("drift"):
        rounds = list(dict.fromkeys(str(e["round"]) for e in events))
        some = ", ".join(rounds[:8]) + ", ..." * (len(rounds) > 8)
        yield f"Samples changed hands ({events[0]['pattern']} drift) after round {some}."


def attacked(run: RunData) -> Iterator[str]:
    """Clients of a simulation that were hostile, and what they and the others came to."""
    for e in run.happened("attack"):
        ends = [
            f"{who} clients {percent(run.value(f'accuracy_{key}'))}"
            for who, key in (("honest", "honest"), ("hostile", "attackers"))
        ]
        yield (
            f"Under attack ({e['kind']} from round {e['start']} on) by "
            f"{listed([str(name) for name in e['clients']])}; at the end: {', '.join(ends)}."
        )


def suspicious(run: RunData) -> Iterator[str]:
    """Clients that lie apart from their cluster, and clusters that could not be merged."""
    for e in run.happened("suspect"):
        yield f"Suspicious since round {e['round']}: client {e['client']}, {e['why']}."
    if events := run.happened("unmerged"):
        which = ", ".join(dict.fromkeys(str(e["cluster"]) for e in events))
        yield (
            "Too few answers to withstand hostile ones, so the model stayed as it was in some "
            f"round: cluster {which} (round {events[0]['round']} first: {events[0]['answers']} of "
            f"the {events[0]['needed']} needed)."
        )


FOUND = (
    unfinished,
    attacked,
    suspicious,
    changed,
    refused,
    held_back,
    replaced,
    homeless,
    untested,
    told,
)


def listed(names: list[str], most: int = 8) -> str:
    """Some names, and how many more there are.

    >>> listed(["a"]), listed(list("abc"), 2)
    ('client a', '3 clients: a, b, ...')
    """
    if len(names) == 1:
        return f"client {names[0]}"
    return f"{len(names):,} clients: {', '.join(names[:most])}" + ", ..." * (len(names) > most)
