"""Networks: the papers' by name (`zoo`), or any module or function of a user's (`factory`).

May touch: core.
"""
