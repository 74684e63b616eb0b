"""The generated files of the clients are current, and the table agrees with the verification of the service."""

import json
import sys
from datetime import UTC, datetime

import pytest

import gatepost
from tests.clients.toolchains import CLIENTS, run

WEBHOOKS = json.loads((CLIENTS / "conformance" / "webhooks.json").read_text("utf-8"))["cases"]


def test_the_types_are_current() -> None:
    run([sys.executable, "clients/generate.py", "--check"], CLIENTS.parent)


def test_the_conformance_table_is_current() -> None:
    run([sys.executable, "clients/conformance/generate.py", "--check"], CLIENTS.parent)


def test_gatepost_verify_agrees_with_the_table() -> None:
    for case in WEBHOOKS:
        now = datetime.fromtimestamp(case["now"], UTC)
        if "event" in case["expect"]:
            verified = gatepost.verify(case["secrets"], case["headers"], case["body"].encode(), now=now)
            assert verified == case["expect"]["event"], case["name"]
        else:
            with pytest.raises(gatepost.VerificationError):
                gatepost.verify(case["secrets"], case["headers"], case["body"].encode(), now=now)
