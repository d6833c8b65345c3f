"""Data sets, their readers, and the ways to divide them among clients.

May touch: core.
"""
