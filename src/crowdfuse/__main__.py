"""`python -m crowdfuse` is the command line."""

from crowdfuse.cli import app

app()
