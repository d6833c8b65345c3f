"""Clients side by side: one set of operations trains a whole stack of them.

backend        the backend: who is answered together, how many at most, and what for all at once
stack          m networks as one; batched: its layers; single_client: those of m = 1
descent        the training of many clients, their mini-batches side by side
"""
