"""A run as it goes: a bar on a terminal, a line per round elsewhere, JSON if asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from coterie.cli import say
from coterie.core.events import Event, Listener
from coterie.core.units import count


@contextmanager
def watching(name: str, *, quiet: bool = False, json: bool = False) -> Iterator[Listener]:
    """A listener that shows a run on the terminal, as much of it as was asked for."""
    if json:
        yield say.line
    elif quiet:
        yield warnings
    elif sys.stderr.isatty():
        with bar(name) as listen:
            yield listen
    else:
        yield lambda event: lines(name, event)


def warnings(event: Event) -> None:
    """Only what a person must know."""
    if text := warning(event):
        say.note(text)


def warning(event: Event) -> str:
    """What a person must know of an event, or nothing."""
    if event["event"] == "warning":
        return f"warning {event['text']}"
    if event["event"] == "rejected":
        client = f"client {event['client']}"
        of = f" of {event['task']}" if "task" in event else ""
        return f"warning round {event['round']}: {client} was left out{of}, {event['why']}"
    if event["event"] == "capped":
        counted, declared = (f"{100 * event[key]:.0f} %" for key in ("counted", "declared"))
        return (
            f"warning round {event['round']}: client {event['client']} counts for {counted} of "
            f"cluster {event['cluster']}, not for the {declared} of the samples that it declares "
            "(engine.max_weight_share)"
        )
    if event["event"] == "alone":
        return (
            f"warning round {event['round']}: {event['task']} was done one by one, which is "
            f"slower, for {some(event['clients'])}: {event['why']}"
        )
    if event["event"] == "suspect":
        return f"warning round {event['round']}: client {event['client']}: {event['why']}"
    if event["event"] == "unmerged":
        return (
            f"warning round {event['round']}: cluster {event['cluster']} keeps its model: "
            f"{event['answers']} answered, and it takes {event['needed']} to withstand hostile ones"
        )
    if event["event"] == "untested":
        return f"warning round {event['round']}: no test samples: {some(event['clients'])}"
    if event["event"] == "replaced":
        return f"warning round {event['round']}: {event['text']}"
    if event["event"] == "unplaced":
        return f"warning round {event['round']}: without a model yet: {some(event['clients'])}"
    return ""


def news(event: Event) -> list[str]:
    """What changed about the clients: who came, who is hostile, how far those are who drift."""
    if event["event"] == "attack":
        who = f"{event['kind']} from round {event['start']} on by {some(event['clients'])}"
        return [f"attack  {who}"]
    if event["event"] == "arrived":
        return [f"clients round {event['round']}: these have come: {some(event['clients'])}"]
    if event["event"] == "drift":
        share = f"{100 * event['share']:.0f} %"
        return [f"drift   round {event['round']}: who drifts has {share} of another's samples"]
    return []


def some(names: list[str]) -> str:
    """At most ten names."""
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")


def lines(name: str, event: Event) -> None:
    """One line per round, for logs and pipes."""
    warnings(event)
    for text in (*outlook(event), *news(event)):
        say.note(text)
    if event["event"] == "resume":
        say.label("run", f"{name}  continues after round {event['round']} of {event['rounds']}")
    if event["event"] == "round":
        width = len(str(event["rounds"]))
        at = f"{event['round']:>{width}}/{event['rounds']}"
        say.label("run", f"{name}  {at}  {numbers(event)}  {say.seconds(event['seconds'])}")


def outlook(event: Event) -> list[str]:
    """What a run that begins is about: its data, its network, who computes; what that will cost.

    Before that, what it waits for.
    """
    found = {}
    if event["event"] == "compiling":
        found["engine"] = event["text"]
    if "data" in event:
        shape, partition = "x".join(map(str, event["shape"])), event["partition"]
        found["data"] = (
            f"{event['data']}: {count(event['samples'], 'training sample')} of {shape}, "
            f"{count(event['classes'], 'class', 'classes')}; "
            f"{count(event['clients'], 'client')} by {partition}"
        )
        chosen = " (chosen for the data)" if event["chosen"] else ""
        sent = f"about {say.size(event['round_bytes'])} down and as much up a round"
        found["model"] = f"{event['network']}{chosen}, {count(event['parameters'], 'parameter')}"
        found["model"] += f"; {sent}" if event["round_bytes"] else "; nothing is sent"
    if event.get("engine"):
        found["engine"] = event["engine"]
        left = event["rounds"] - event["round"]
        if (seconds := left * event.get("round_seconds", 0)) >= 1:
            found["engine"] += f"; roughly {say.seconds(seconds)} for {count(left, 'round')}"
    return [f"{word:<7} {text}" for word, text in found.items()]


def numbers(event: Event, short: bool = False) -> str:
    """The numbers of a round that a person watches.

    >>> numbers({"accuracy": 0.93, "worst": 0.85, "clusters": 4.0, "ari": 1.0})
    'accuracy 93.0 %  worst client 85.0 %  4 clusters (ARI 1.00)'
    >>> numbers({"accuracy": 0.93, "worst": 0.85, "clients": 3, "absent": 1})
    'accuracy 93.0 % of 3 clients (1 absent)  worst client 85.0 %'
    >>> numbers({"accuracy": 0.93, "worst": 0.85, "clusters": 4.0, "ari": 1.0}, short=True)
    '93.0 %  worst 85.0 %  4 clusters'
    """
    found = clusters(event)
    if "accuracy" in event:
        mean, worst = say.percent(event["accuracy"]), say.percent(event.get("worst"))
        mean += behind(event, short)
        if "validation" in event and not short:
            mean += f" (validation {say.percent(event['validation'])})"
        words = [mean, f"worst {worst}"] if short else [f"accuracy {mean}", f"worst client {worst}"]
        found = words + found
    return "  ".join(text.split(" (")[0] if short else text for text in found)


def behind(numbers: Mapping[str, Any], short: bool = False) -> str:
    """How many clients a mean is of, where it is not of everybody.

    >>> behind({"clients": 2.0, "absent": 1.0}), behind({"clients": 3.0, "absent": 0.0})
    (' of 2 clients (1 absent)', '')
    """
    if not numbers.get("absent"):
        return ""
    count = int(numbers["clients"])
    return f" of {count}" if short else f" of {count} clients ({int(numbers['absent'])} absent)"


def clusters(event: dict[str, Any]) -> list[str]:
    """The number of clusters, if it says anything."""
    many = int(event.get("clusters", 0))
    ari = f" (ARI {event['ari']:.2f})" if "ari" in event else ""
    return [f"{count(many, 'cluster')}{ari}"] if many > 1 else []


@contextmanager
def bar(name: str) -> Iterator[Listener]:
    """A progress bar on the terminal; on a narrow one the numbers are short, the bar stays."""
    from rich import progress as rich
    from rich.console import Console
    from rich.table import Column

    console = Console(stderr=True, highlight=False)
    wide = console.width >= 110
    columns: list[rich.ProgressColumn] = [
        rich.TextColumn("run     {task.description:<9}", table_column=Column(no_wrap=True)),
        rich.BarColumn(bar_width=20 if wide else 10),
        rich.MofNCompleteColumn(),
        *([rich.TimeElapsedColumn()] if wide else []),
        rich.TimeRemainingColumn(compact=not wide),
        rich.TextColumn("{task.fields[numbers]}", table_column=Column(no_wrap=True)),
    ]
    with rich.Progress(*columns, console=console, refresh_per_second=2) as progress:  # ten cost 1 %
        task = progress.add_task(name, total=None, numbers="")

        def listen(event: Event) -> None:
            for text in filter(None, (warning(event), *outlook(event), *news(event))):
                progress.console.print(text, markup=False)
            if event["event"] in ("start", "resume", "round"):
                progress.update(task, completed=event["round"], total=event["rounds"])
            if text := numbers(event, short=not wide):
                progress.update(task, numbers=text)

        yield listen
