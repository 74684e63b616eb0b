"""The command `gatepost`: one file per noun."""

from gatepost.cli.main import main

__all__ = ["main"]
