"""The papers' networks, each a function of a sample's shape and the number of classes.

A function that has normalisation layers takes `norm`; what else it takes are its options.
"""

from typing import Literal

Norm = Literal["group", "batch"]
