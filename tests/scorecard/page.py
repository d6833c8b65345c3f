"""The page of the scorecard, from what a session wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from tests.scorecard.plugin import NEVER, named
from tests.scorecard.rows import ROWS

Tests = Sequence[Mapping[str, Any]]
STORAGE, KILLS, RESUMES = "storage crash points", "process kills", "identical resumes"
LEAST_STORAGE, LEAST_KILLS = 500, 48  # what the scorecard promises
LEAKS = "audit "  # what the names of figures begin with that tell what a method leaks
HEAD = """# The scorecard

What goes wrong in federated learning, what coterie does then, and whether its tests show it. This
page is written by `make scorecard`, which runs every test that is marked with a row
(`@pytest.mark.row(12)`). A row is *passed* if it has tests, all of them passed and none was
skipped; a row without a test is *absent*. What the rows promise together stands in
[reliability.md](reliability.md).
"""


def of_row(tests: Tests, number: int) -> list[Mapping[str, Any]]:
    """The tests of one row."""
    return [test for test in tests if number in test["rows"]]


def status(tests: Tests) -> str:
    """How a row stands, by its tests alone."""
    ends = Counter(test["ended"] for test in tests)
    if not tests:
        return "absent"
    if set(ends) == {"passed"}:
        return "passed"
    bad = [f"{n} {end}" for end, n in sorted(ends.items()) if end != "passed"]
    word = next(word for word in ("failed", NEVER, "skipped") if word in ends)
    return f"**{word}** ({', '.join(bad)} of {len(tests)})"


def passed(tests: Tests) -> int:
    """How many rows passed."""
    return sum(status(of_row(tests, row.number)) == "passed" for row in ROWS)


def figures_of(tests: Tests) -> dict[str, Any]:
    """All figures of some tests, by name."""
    return named(figure for test in tests for figure in test["figures"])


def shown(value: Any) -> str:
    """A figure as people read it.

    >>> shown(1234567), shown(0.25), shown("no")
    ('1,234,567', '0.25', 'no')
    """
    if isinstance(value, float) and value != int(value):
        return f"{value:,.3g}"
    return f"{int(value):,}" if isinstance(value, int | float) else str(value)


def files_of(tests: Tests) -> str:
    """Where the tests are, with how many of them."""
    found = Counter(str(test["test"]).partition("::")[0] for test in tests)
    return "<br>".join(
        f"{name.removeprefix('tests/')} ({count})" for name, count in sorted(found.items())
    )


def enough(tests: Tests) -> bool:
    """Whether there were as many crashes as promised, each with a resume to the same bytes."""
    found = figures_of(tests)
    crashes, kills = found.get(STORAGE, 0), found.get(KILLS, 0)
    return bool(
        crashes >= LEAST_STORAGE
        and kills >= LEAST_KILLS
        and found.get(RESUMES, 0) == crashes + kills
    )


def headlines(tests: Tests) -> list[str]:
    """The three numbers that are told first."""
    found = figures_of(tests)
    crashes, kills = found.get(STORAGE, 0), found.get(KILLS, 0)
    lines = [
        f"**{passed(tests)} of {len(ROWS)} rows.**",
        f"**{crashes + kills:,} crash points ({crashes:,} storage operations, {kills:,} process "
        f"kills), {found.get(RESUMES, 0):,} identical resumes.** Where one run is killed several "
        "times, each kill is followed by a resume, and the bytes are compared at the end.",
    ]
    leaks = {name.removeprefix(LEAKS): v for name, v in found.items() if name.startswith(LEAKS)}
    if leaks:
        lines.append(
            "**What leaves a client, and what an attacker makes of it**, on digits with `cnn-s`: a "
            "picture from one sample and one step, labels from what was really sent "
            "([audit.md](audit.md)):"
        )
        alike: dict[str, list[str]] = {}
        for name, value in leaks.items():
            alike.setdefault(shown(value), []).append(name)
        lines += [f"   - {', '.join(names)}: {value}" for value, names in alike.items()]
    else:
        lines.append("What each method leaks: no test has told it yet.")
    return [line if line.startswith(" ") else f"- {line}" for line in lines]


def page(tests: Tests, seconds: float, machine: str) -> str:
    """All of it as Markdown."""
    parts = [HEAD, "\n".join(headlines(tests))]
    for part, rows in groupby(ROWS, key=lambda row: row.part):
        lines = ["| | what goes wrong | what is expected | | figures | tests |", "|" + "---|" * 6]
        for row in rows:
            mine = of_row(tests, row.number)
            figures = (
                f"{name}: {shown(value)}"
                for name, value in sorted(figures_of(mine).items())
                if not name.startswith(LEAKS)
            )
            cells = (row.fault, row.expected, status(mine), "<br>".join(figures), files_of(mine))
            lines.append(
                f"| {row.number} | {' | '.join(c.replace('|', chr(92) + '|') for c in cells)} |"
            )
        parts.append(f"## {part}\n\n" + "\n".join(lines))
    run = sum(test["ended"] != NEVER for test in tests)
    parts.append(
        f"{run:,} of {len(tests):,} tests were run, in {seconds / 60:.0f} minutes on {machine}."
    )
    return "\n\n".join(part.strip() for part in parts) + "\n"
