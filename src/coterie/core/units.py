"""Numbers for people: bytes, shares and times."""

from __future__ import annotations


def count(number: float, one: str, many: str = "") -> str:
    """So many of a thing, in the singular if it is one.

    >>> count(1, "round"), count(2_000, "round"), count(3, "class", "classes")
    ('1 round', '2,000 rounds', '3 classes')
    """
    return f"{number:,.0f} {one if number == 1 else many or one + 's'}"


def size(count: float) -> str:
    """Bytes for people.

    >>> size(999), size(1_500_000), size(2.5e9)
    ('999 B', '1.5 MB', '2.5 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def percent(share: float | None) -> str:
    """A share in percent.

    >>> percent(0.713), percent(None)
    ('71.3 %', 'n/a')
    """
    return "n/a" if share is None or share != share else f"{100 * share:.1f} %"


def seconds(count: float) -> str:
    """A time for people.

    >>> seconds(4.13), seconds(200), seconds(4000)
    ('4.1 s', '3 min 20 s', '1 h 06 min')
    """
    if count < 60:
        return f"{count:.1f} s"
    minutes, rest = divmod(round(count), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
