"""Clients side by side: one set of operations trains a whole stack of them."""
