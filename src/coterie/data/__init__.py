"""Data sets and their division among clients.

Here lies what others use: `load` and the `named` sets, the `kinds` of partition, a `partition` and
its file, a `population` of clients. `readers` reads each format, `divide` hands out the samples.

May touch: core.
"""
