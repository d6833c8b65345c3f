"""Seconds per round of coterie, of a plain PyTorch loop and of other libraries, side by side.

`python -m bench` runs the comparison, `python -m bench.profile W1` shows where the time goes.
What a contestant needs to import (`workloads`, `contestant`) knows numpy alone: every library runs
in an environment of its own.
"""
