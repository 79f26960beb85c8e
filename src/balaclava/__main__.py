"""`python -m balaclava` is the `balaclava` command."""

from balaclava.cli import main

main(prog_name="balaclava")
