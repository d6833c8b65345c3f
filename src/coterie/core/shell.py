"""Commands that a person is told, as they are typed into a shell."""

from __future__ import annotations

import shlex


def command(*words: object) -> str:
    """A command of coterie's, every word quoted where a shell would read it otherwise.

    >>> command("resume", "runs/my run; ls", "--rounds", 4)
    "coterie resume 'runs/my run; ls' --rounds 4"
    """
    return shlex.join(["coterie", *map(str, words)])
