"""`python -m gatepost` is the command."""

from gatepost.cli import main

main()
