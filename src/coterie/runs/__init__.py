"""The folder of a run: what is measured, how it is written, saved, and read back.

May touch: core, words.
"""
