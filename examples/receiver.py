"""A receiver of webhooks: it verifies each one, prints it, and responds.

    WEBHOOK_SECRET=whsec_… python examples/receiver.py

`verify` is the part to take along. It follows Standard Webhooks.
"""
# ruff: noqa: TID251

import argparse
import hmac
import json
import os
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOLERANCE = 300  # seconds
LARGEST = 1 << 20  # bytes


def verify(secret: str, headers: Mapping[str, str], body: bytes) -> str:
    """Return why a request cannot be trusted, or an empty string. The names of headers are in lower case."""
    sent_at, signatures = headers.get("webhook-timestamp", ""), headers.get("webhook-signature", "")
    if not sent_at.isdecimal() or abs(time.time() - int(sent_at)) > TOLERANCE:
        return "webhook-timestamp is missing or not recent"
    content = f"{headers.get('webhook-id', '')}.{sent_at}.".encode() + body
    expected = b64encode(hmac.digest(b64decode(secret.removeprefix("whsec_")), content, "sha256")).decode()
    valid = [hmac.compare_digest(f"v1,{expected}".encode(), each.encode()) for each in signatures.split()]
    return "" if any(valid) else "no signature matches the secret"


class Receiver(BaseHTTPRequestHandler):
    secret = ""

    def do_POST(self) -> None:
        size = int(self.headers.get("content-length", 0))
        if size > LARGEST:
            self.respond(413)
            return
        body = self.rfile.read(size)
        problem = verify(self.secret, {name.lower(): text for name, text in self.headers.items()}, body)
        if problem:
            print("refused:", problem, flush=True)
            self.respond(400)
        else:
            event = json.loads(body)
            print("verified:", event["type"], json.dumps(event["data"]), flush=True)
            self.respond(204)

    def respond(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """One line for each webhook is enough."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--port", type=int, default=8787)
    given = parser.parse_args()
    Receiver.secret = os.environ.get("WEBHOOK_SECRET", "")
    if not Receiver.secret.startswith("whsec_"):
        parser.error("set WEBHOOK_SECRET to the secret of the endpoint, whsec_…")
    server = ThreadingHTTPServer((given.host, given.port), Receiver)
    print(f"receiving at http://{given.host}:{given.port}/hooks", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
