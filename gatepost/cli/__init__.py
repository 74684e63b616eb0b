"""The command `gatepost`: one file per noun."""

import sys

try:
    from gatepost.cli.main import main
except KeyboardInterrupt:  # the imports take most of the start
    sys.exit(1)

__all__ = ["main"]
