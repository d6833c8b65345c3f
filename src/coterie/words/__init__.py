"""What methods say: distances, groups, votes, affinities, and the mixing of models.

Pure functions of tensors, each with its shapes and an example. A method is a sentence of them.

May touch: core.
"""
