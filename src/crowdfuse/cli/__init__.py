"""The command line: a thin shell around the other packages."""

from __future__ import annotations

from crowdfuse.cli.app import app

__all__ = ["app"]
