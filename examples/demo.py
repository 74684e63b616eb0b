"""`make demo`: a service in a temporary directory, a token, and webhooks to three receivers, watched live.

One receiver is healthy, one fails twice before it recovers, one is gone. The schedule of retries is compressed by the
endpoints' own `retry_schedule`; everything else is as anybody would have it.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlencode

from rich.console import Console
from rich.live import Live
from rich.table import Table

import gatepost

console = Console()
SCOPES = "gatepost:endpoints gatepost:subscriptions gatepost:deliveries gatepost:events"
SCHEDULE = [1, 2, 4]
RECEIVERS = {"healthy": [200], "failing twice": [503, 500, 200], "gone": [410]}
EVENTS = [
    ("order.placed", {"order": 1001, "total": 42.5}),
    ("order.paid", {"order": 1001}),
    ("order.shipped", {"order": 1001, "carrier": "post"}),
]
WATCHED = 40.0  # seconds at most


def main() -> None:
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        url, ops, first, environment = stack.enter_context(service(directory))
        console.print(f"[bold]Gatepost is up[/] at {url}, on SQLite in a temporary directory.\n")
        token = ask(f"{url}/oauth/tokens", first)
        console.print("[bold]1.[/] A token for its first client, by [cyan]POST /oauth/tokens[/]: scopes are explicit.")
        receivers = {name: stack.enter_context(receiver(codes)) for name, codes in RECEIVERS.items()}
        names = {}
        for name, each in receivers.items():
            endpoint = define(
                url, token, "endpoints", {"url": each.url, "retry_schedule": SCHEDULE, "description": name}
            )
            each.secret = endpoint["secret"]
            names[endpoint["id"]] = name
            define(url, token, "subscriptions", {"endpoint_id": endpoint["id"], "events": ["order.*"]})
        console.print("[bold]2.[/] Three endpoints, each subscribed to [cyan]order.*[/]: healthy, failing twice, gone.")
        for number, (kind, data) in enumerate(EVENTS, 1):
            event = {"specversion": "1.0", "id": str(number), "source": "/demo", "type": kind, "data": data}
            post(f"{ops}/events", json.dumps(event).encode(), bearer(token))
        console.print("[bold]3.[/] Three events published, by [cyan]POST /events[/]. Their deliveries, live:\n")
        failed = watch(url, token, names)
        verified = sum(each.verified for each in receivers.values())
        console.print(
            f"\n[bold]4.[/] The receivers checked {verified} signatures with [cyan]gatepost.verify[/]: all good."
        )
        command(environment, "5. One delivery's story", "delivery", "explain", failed, "--account", "default")
        command(environment, "6. Nothing was changed since: the seals", "audit", "verify", "--account", "default")
    console.print(
        "\nNext: [bold]make serve[/] keeps one running, README.md has the same steps by curl. Try "
        "[cyan]gatepost delivery list --watch[/], [cyan]gatepost simulate 503 timeout 429:60 200[/], "
        "[cyan]gatepost endpoint list[/]."
    )


def watch(url: str, token: str, names: Mapping[str, str]) -> str:
    """Redraw until every delivery has ended or is held; the id of one that was retried."""
    end = time.monotonic() + WATCHED
    deliveries: list[dict[str, Any]] = []
    with Live(console=console, auto_refresh=False) as live:
        while time.monotonic() < end:
            deliveries = get(f"{url}/webhooks/deliveries?order=oldest", bearer(token))["data"]
            live.update(table(deliveries, names), refresh=True)
            if len(deliveries) == 9 and all(each["status"] not in ("pending", "in_flight") for each in deliveries):
                break
            time.sleep(0.2)
    return str(max(deliveries, key=lambda each: len(each["attempts"]))["id"])


def table(deliveries: list[dict[str, Any]], names: Mapping[str, str]) -> Table:
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("event", "endpoint", "status", "attempts", "next attempt"):
        shown.add_column(heading, min_width=14)
    colours = {"succeeded": "green", "failed": "red", "held": "yellow", "pending": "cyan", "in_flight": "cyan"}
    for each in deliveries:
        codes = " ".join(str(attempt["response_code"] or attempt["failure"] or "…") for attempt in each["attempts"])
        plan = each["retries"]["plan"]
        ahead = f"{plan[0]['at'][11:19]} ({plan[0]['because']}), {len(plan)} left" if plan else each["ended_reason"]
        status = f"[{colours.get(each['status'], 'white')}]{each['status']}[/]"
        shown.add_row(each["event"]["type"], names[each["endpoint"]["id"]], status, codes or "–", ahead)
    return shown


# --- receivers


class Receiver:
    def __init__(self, codes: list[int]) -> None:
        self.codes = codes
        self.url = ""
        self.secret = ""
        self.verified = 0
        self._seen: Counter[str] = Counter()

    def answer(self, headers: Mapping[str, str], body: bytes) -> int:
        """Check the signature, then answer with the next code for this event."""
        event = gatepost.verify(self.secret, headers, body)["id"]
        self.verified += 1
        self._seen[event] += 1
        return self.codes[min(self._seen[event], len(self.codes)) - 1]


@contextmanager
def receiver(codes: list[int]) -> Iterator[Receiver]:
    """A small web server that answers each event with these codes in turn, the last one for ever."""
    found = Receiver(codes)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(found.answer(dict(self.headers), body))
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}/hooks"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()


# --- the service


@contextmanager
def service(directory: str) -> Iterator[tuple[str, str, tuple[str, str], dict[str, str]]]:
    """The command itself; its first client is printed once."""
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        port, ops_port = one.getsockname()[1], other.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GATEPOST_")}
    environment |= {"GATEPOST_PORT": str(port), "GATEPOST_OPS_PORT": str(ops_port)}
    environment |= {"GATEPOST_DATA": directory, "GATEPOST_DEV": "true"}
    command_ = [sys.executable, "-m", "gatepost", "serve"]
    process = subprocess.Popen(command_, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        said: dict[str, str] = {}
        for line in process.stdout or ():
            words = line.split()
            said |= {words[0]: words[1]} if len(words) == 2 else {}
            if "ready" in said:
                break
        first = (said["client_id"], said["client_secret"])
        yield said["ready"], f"http://127.0.0.1:{ops_port}", first, environment
    finally:
        process.terminate()
        process.wait()


def ask(url: str, client: tuple[str, str]) -> str:
    form = urlencode({"grant_type": "client_credentials", "scope": SCOPES}).encode()
    basic = "Basic " + b64encode(":".join(client).encode()).decode()
    return str(post(url, form, {"Authorization": basic})["access_token"])


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}


def define(url: str, token: str, noun: str, body: dict[str, Any]) -> dict[str, Any]:
    return post(f"{url}/webhooks/{noun}", json.dumps(body).encode(), bearer(token))


def get(url: str, headers: Mapping[str, str]) -> dict[str, Any]:
    return _call(urllib.request.Request(url, headers=dict(headers)))  # noqa: S310 (our own http address)


def post(url: str, body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    return _call(urllib.request.Request(url, body, dict(headers)))  # noqa: S310 (the same)


def _call(request: urllib.request.Request) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 (the same)
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{request.full_url}: {error.code} {error.read().decode()}") from None


def command(environment: Mapping[str, str], title: str, *arguments: str) -> None:
    """As a person would see it: the command writes to the terminal itself."""
    console.print(f"\n[bold]{title}[/]  [dim]gatepost {' '.join(arguments)}[/]")
    subprocess.run([sys.executable, "-m", "gatepost", *arguments], env=dict(environment), check=True)


if __name__ == "__main__":
    main()
