"""`python -m gatepost.web.openapi` prints the document."""

import sys

from gatepost.web.openapi import text

sys.stdout.write(text())
