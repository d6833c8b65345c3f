import coterie.engines.flower  # noqa: F401  imports Flower with its own warnings silenced
