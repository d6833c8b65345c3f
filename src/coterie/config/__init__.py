"""The experiment file: its tables, its checks, and its resolved form. Free of torch.

May touch: core, attacks, methods, models, data, engines.
"""

from coterie.config.load import load, loads
from coterie.config.problems import ProblemsError
from coterie.config.resolved import explain, resolved
from coterie.config.schema import Config

__all__ = ["Config", "ProblemsError", "explain", "load", "loads", "resolved"]
