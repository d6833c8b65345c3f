"""A comparison that was run: its folder read back as one table, tested, and told in words."""

from coterie.runs.comparison.reading import Cell, Comparison, cell_name

__all__ = ["Cell", "Comparison", "cell_name"]
