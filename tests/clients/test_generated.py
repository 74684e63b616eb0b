"""The generated files of the clients are current, and the service verifies webhooks as the clients do."""

import sys

import gatepost
import gatepost_client
from tests.clients.toolchains import CLIENTS, run


def test_the_types_are_current() -> None:
    run([sys.executable, "clients/generate.py", "--check"], CLIENTS.parent)


def test_the_conformance_table_is_current() -> None:
    run([sys.executable, "clients/conformance/generate.py", "--check"], CLIENTS.parent)


def test_gatepost_verify_is_the_function_of_the_python_client() -> None:
    """The Python client is tested with the table, so `gatepost.verify` agrees with it, too."""
    assert gatepost.verify is gatepost_client.verify_webhook
    assert gatepost.VerificationError is gatepost_client.VerificationError
