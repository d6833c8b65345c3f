"""An experiment file for each table of the five papers, and under papers/ what the paper prints.

They are ordinary files: `coterie compare` takes them, and a copy is a start for experiments of your
own. `coterie reproduce` knows which settings of a table each stands for. Beside them lie the
grid of the atlas (atlas.toml, for `coterie atlas`) and what its results advise (advice.json).

May touch: nothing.
"""
