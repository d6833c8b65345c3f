"""A kind of partition as people are told of it: its text, and what that leaves to be known."""

from __future__ import annotations

from coterie.data.kinds import Kind, Rotation, parts_of


def told(kind: Kind) -> str:
    """The text of a kind; of a rotation always the angles.

    >>> from coterie.data.kinds import parse
    >>> told(parse("rotation:4+quantity"))
    'iid+rotation (0°/90°/180°/270°)+quantity'
    """
    return "+".join(_turned(k) if isinstance(k, Rotation) else str(k) for k in parts_of(kind))


def _turned(kind: Rotation) -> str:
    """Every angle, shortened where it is no round number."""
    return f"{kind.name} ({'/'.join(f'{angle:.4g}°' for angle in kind.angles)})"
