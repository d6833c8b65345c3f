"""The folder of a run: what is measured, how it is written, saved, and read back.

`records` writes a folder and `reading` reads it; `model` says what its models need to be used. A
comparison is a folder of such folders.

May touch: core, words, models.
"""
