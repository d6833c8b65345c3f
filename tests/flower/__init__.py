import coterie.engine.flower  # noqa: F401  imports Flower with its own warnings silenced
