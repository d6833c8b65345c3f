"""The atlas: who wins where, over kinds of difference, data sets and sizes of clients."""
