"""Networks: the papers' by name (`zoo`), or any module or function of a user's (`factory`).

`spec` is what is needed to use a model besides its numbers; `saved` writes both as one file.

May touch: core.
"""
