"""`python -m coterie`, and the command `coterie`: signals are heeded before all else."""

import gc

from coterie.core import stopping

# New objects before the next look for garbage among them, and such looks before one at what was
# left. By default 700 and 10: a third of a million objects, which come with the libraries and stay,
# are looked through again and again.
PATIENCE = (20_000, 50)


def main() -> None:
    """Run one command and exit with its code."""
    stopping.heed()
    gc.set_threshold(*PATIENCE)
    from coterie.cli import main as command

    try:
        command()
    finally:
        gc.freeze()  # all of it ends now: Python need not look through PyTorch once more, thrice


if __name__ == "__main__":
    main()
