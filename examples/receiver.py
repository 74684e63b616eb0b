"""A receiver of webhooks, which verifies the signature of each.

    python examples/receiver.py endpoint.json --port 8787

endpoint.json has the endpoint's secret, as `gatepost endpoint create --save endpoint.json` writes it.
"""

import argparse
import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import gatepost


class Receiver(BaseHTTPRequestHandler):
    secret = ""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            event = gatepost.verify(self.secret, dict(self.headers), body)
        except gatepost.VerificationError as error:
            print("refused:", error, flush=True)
            self.send_response(400)
        else:
            print("delivered and verified:", event["type"], event["data"], flush=True)
            self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description="Receive webhooks and verify them.")
    parser.add_argument("file", type=Path, help="the file with the endpoint's secret")
    parser.add_argument("--port", type=int, default=8787)
    parser.add_argument("--once", action="store_true", help="end after one request")
    arguments = parser.parse_args()
    Receiver.secret = json.loads(arguments.file.read_text("utf-8"))["secret"]
    server = HTTPServer(("127.0.0.1", arguments.port), Receiver)
    if arguments.once:
        server.handle_request()
    else:
        server.serve_forever()


if __name__ == "__main__":
    main()
