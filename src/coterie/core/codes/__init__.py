"""Every error code: what it means and what to do about it. Codes are stable and never reused."""

from coterie.core.codes.configuration import CONFIGURATION
from coterie.core.codes.data import DIVIDING, READING
from coterie.core.codes.families import FAMILIES, Code, Family
from coterie.core.codes.running import RUNNING

CODES: dict[str, Code] = dict(sorted({**CONFIGURATION, **READING, **DIVIDING, **RUNNING}.items()))

__all__ = ["CODES", "FAMILIES", "Code", "Family"]
