"""`gatepost listen`: forward an endpoint's new deliveries to a receiver on this machine, for development."""

import time
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import click
import msgspec

from gatepost.cli import show
from gatepost.cli.event import MAX_COMMIT_DELAY
from gatepost.cli.kinds import ENDPOINT
from gatepost.cli.operations import Operations, Record, pages, with_operations
from gatepost.cli.options import contents, http_url
from gatepost.cli.remote import NoRedirects
from gatepost.core import clock, webhook_signature
from gatepost.core.errors import BadSetting, Unavailable
from gatepost.webhooks import message

POLL_EVERY = 1.0  # seconds
TIMEOUT = 15.0  # seconds, as the default of endpoints
_OPENER = build_opener(ProxyHandler({}), NoRedirects)


@click.command()
@click.argument("endpoint_id")
@click.option("--forward", "url", required=True, metavar="URL", help="Such as http://127.0.0.1:3000/hooks.")
@click.option(
    "--secret",
    metavar="WHSEC",
    help="Sign with this secret; @FILE for the content of a file. The default is a new one.",
)
@with_operations
def listen(operations: Operations, endpoint_id: str, url: str, secret: str | None, as_json: bool) -> None:
    """Send each new delivery of an endpoint to a local URL too, and print the response, until Ctrl-C.

    The deliveries themselves do not change, and what the local receiver did not accept is not sent to it again. The
    endpoint can be disabled: its deliveries are then held, but still forwarded.
    """
    if http_url(url) is None or not url.isascii():
        raise BadSetting("--forward: must be an http or https URL, such as http://127.0.0.1:3000/hooks")
    text = contents(secret) if secret else webhook_signature.new_secret("v1").shown
    try:
        signer = webhook_signature.signer("v1", webhook_signature.parse_secret(text))
    except ValueError as error:
        raise BadSetting(f"--secret: {error}") from None
    operations.define(ENDPOINT, {"id": endpoint_id})  # which must exist
    seen = _Seen(operations, endpoint_id)
    click.echo(f"forwarding new deliveries of {endpoint_id} to {url}; press Ctrl-C to stop", err=True)
    if not secret:
        click.echo(f"signing secret: {text}", err=True)
    try:
        while True:
            time.sleep(POLL_EVERY)
            for delivery in seen.poll():
                _print(delivery, _forward(delivery, url, signer), as_json)
    except KeyboardInterrupt:
        return


class _Seen:
    """The deliveries that were seen. Those that exist at the beginning are not forwarded.

    A delivery gets its time before it is committed, so each poll goes back by as long as a commit can take, and skips
    what was seen. Times are compared with those of other deliveries only, not with the clock of this machine.
    """

    def __init__(self, operations: Operations, endpoint_id: str) -> None:
        self._operations = operations
        self._query = {"endpoint_id": endpoint_id, "order": "oldest", "include": "payload", "limit": "50"}
        self._newest = clock.EPOCH + MAX_COMMIT_DELAY
        self._ids: set[str] = set()
        self._advance(operations.deliveries({"endpoint_id": endpoint_id, "limit": "1"})["data"])
        self.poll()

    def poll(self) -> list[Record]:
        """Return the new deliveries, oldest first. There are none while the service is unavailable."""
        since = clock.rfc3339(self._newest - MAX_COMMIT_DELAY)
        try:
            found = list(pages(self._operations, self._query | {"created_after": since}))
        except Unavailable as error:
            click.echo(f"gatepost: {show.printable(str(error))}; retrying", err=True)
            return []
        new = [delivery for delivery in found if delivery["id"] not in self._ids]
        self._ids = {delivery["id"] for delivery in found}
        self._advance(found)
        return new

    def _advance(self, found: list[Record]) -> None:
        for delivery in found:
            self._newest = max(self._newest, clock.parse_rfc3339(delivery["created_at"]) or self._newest)


def _forward(delivery: Record, url: str, signer: webhook_signature.Signer) -> str:
    """Send the event as the worker would, and return the status or what failed."""
    if delivery["payload"] is None:
        return "not sent: the event is no longer retained"
    body, at = msgspec.json.encode(delivery["payload"]), clock.seconds(clock.now())
    signature = webhook_signature.signature([signer], delivery["event"]["id"], at, body)
    format_ = "cloudevents" if "specversion" in delivery["payload"] else "standard"
    lines = message.headers(message.fixed_headers({}, format_), delivery["event"]["id"], at, signature)
    headers = dict(line.split(": ", 1) for line in lines)
    try:
        with _OPENER.open(Request(url, body, headers), timeout=TIMEOUT) as response:  # noqa: S310 (checked)
            return str(response.status)
    except HTTPError as response:
        response.close()
        return str(response.code)
    except (OSError, HTTPException) as error:
        return f"failed: {getattr(error, 'reason', error)}"


def _print(delivery: Record, result: str, as_json: bool) -> None:
    event = delivery["event"]
    if as_json:
        click.echo(msgspec.json.encode({"id": delivery["id"], "event": event, "result": result}))
    else:
        click.echo(show.printable(f"{event['type']}  {delivery['id']}  {result}"))
