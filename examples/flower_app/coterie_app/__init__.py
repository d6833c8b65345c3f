"""A coterie experiment as a Flower app."""
