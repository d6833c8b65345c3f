"""Methods compared: run on equal terms, read back as one table, tested, and told in words."""

from coterie.studies.comparison.reading import Cell, Comparison, cell_name

__all__ = ["Cell", "Comparison", "cell_name"]
