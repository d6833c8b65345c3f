"""How data is read: one module a format, what they share, and the form every set is given.

A reader turns a source into a `Raw` and runs no code from it. `form` then brings whatever
was stored into labels 0..K-1 and into images (N, C, H, W) or features (N, D).
"""
