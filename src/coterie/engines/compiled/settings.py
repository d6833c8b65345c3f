"""What those who write the code and those who call it agree on."""

LANES = 8  # numbers in a vector: what AVX2 has in a register
WIDE = 16  # in one where there is much to do at once: a register of AVX-512, or two of AVX2
READING = 60  # samples that are read in one go: a multiple of every tile of rows
ROWS = ("w", "velocity", "anchor", "shift", "there", "spare")  # in this order, as pointers
RATES = ("rate", "momentum", "decay", "prox", "meta", "terms")  # in this order, as numbers
