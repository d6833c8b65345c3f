"""`python -m coterie`, and the command `coterie`: signals are heeded before all else."""

from coterie.core import stopping


def main() -> None:
    """Run one command and exit with its code."""
    stopping.heed()
    from coterie.cli import main as command

    command()


if __name__ == "__main__":
    main()
