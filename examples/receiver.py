"""A receiver of webhooks: it verifies each one, prints it, and responds.

    python examples/receiver.py endpoint.json
    WEBHOOK_SECRET=whsec_… python examples/receiver.py

endpoint.json has the endpoint's secret, as `gatepost endpoint create --save endpoint.json` writes it.
"""

import argparse
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from gatepost_client import VerificationError, verify_webhook

LARGEST = 1 << 20  # bytes


class Server(ThreadingHTTPServer):
    daemon_threads = False  # the end of the program waits for the request


class Receiver(BaseHTTPRequestHandler):
    secret = ""

    def do_POST(self) -> None:
        size = int(self.headers.get("content-length", 0))
        if size > LARGEST:
            self.respond(413)
            return
        body = self.rfile.read(size)
        try:
            event = verify_webhook(self.secret, dict(self.headers), body)
        except VerificationError as error:
            print("refused:", error, flush=True)
            self.respond(400)
        else:
            print("delivered and verified:", event["type"], json.dumps(event["data"]), flush=True)
            self.respond(204)

    def respond(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """One line for each webhook is enough."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", help="the file with the endpoint's secret")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--port", type=int, default=8787)
    parser.add_argument("--once", action="store_true", help="end after one request")
    given = parser.parse_args()
    Receiver.secret = (
        json.loads(given.file.read_text("utf-8"))["secret"] if given.file else os.environ.get("WEBHOOK_SECRET", "")
    )
    if not Receiver.secret:
        parser.error("name the file with the endpoint's secret, or set WEBHOOK_SECRET")
    server = Server((given.host, given.port), Receiver)
    if given.once:
        server.handle_request()
        server.server_close()
    else:
        print(f"receiving at http://{given.host}:{given.port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
