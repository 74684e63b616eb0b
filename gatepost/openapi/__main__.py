"""`python -m gatepost.openapi` prints the document."""

import sys

from gatepost.openapi import text

sys.stdout.write(text())
