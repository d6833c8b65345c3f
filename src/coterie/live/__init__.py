"""The live view: a page that follows a run, on this machine alone, and cannot change anything.

It listens on 127.0.0.1, answers GET and HEAD, asks every request for the token that is in its
address and for a Host that is its own, and has a few fixed routes. It only reads the run's folder:
while the run goes, after it, and across a resume.

May touch: core, runs, report.
"""

from __future__ import annotations

from coterie.live.beside import View, beside, listening

__all__ = ["View", "beside", "listening"]
