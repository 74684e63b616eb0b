"""The upper limit of the delivery rate: libcurl with the options of the worker, which sends the same bytes.

`python -m bench.raw COUNT IN_FLIGHT [CA] URL…` prints requests per second. libcurl runs without an event loop, and
only the status of a response is read.
"""

import sys
import time
from urllib.parse import urlsplit

import certifi
import pycurl  # type: ignore[import-untyped]

from gatepost.core import clock, ids
from gatepost.core.webhook_signature import new_secret, signature, signer
from gatepost.egress import sender
from gatepost.egress.address_guard import Policy
from gatepost.egress.transfer import Outgoing, Target, Transfer
from gatepost.webhooks import message
from gatepost.webhooks.message import EventMessage

TIMESTAMP = 1_800_000_000
TIMEOUT = 15.0
DATA = '{"sent":1800000000000000000,"padding":"0123456789"}'


class NoLoop:
    """Replaces the `CurlLoop`, because libcurl watches its sockets itself."""

    def add_connection(self, fd: int, lost: object) -> None: ...


def post(count: int, in_flight: int, urls: list[str], ca: str) -> float:
    told = EventMessage(ids.new("acc"), ids.new("evt"), "bench.sent", clock.milliseconds(clock.now()), DATA)
    sign = signer("v1", new_secret("v1").raw)
    fixed = message.fixed_headers({}, "standard")
    multi = pycurl.CurlMulti()
    multi.setopt(pycurl.M_MAXCONNECTS, sender.MAX_IDLE_CONNECTIONS)
    at = urlsplit(urls[0])
    target = Target(at.hostname or "", at.port or 0)
    policy = Policy(dev=True)
    idle = [Transfer(policy, NoLoop(), "", ca or certifi.where()) for _ in range(min(in_flight, count))]  # type: ignore[arg-type]
    running = {}
    started = finished = 0
    began = time.monotonic()
    while finished < count:
        while idle and started < count:
            transfer = idle.pop()
            body = message.body(told)
            signed = signature([sign], told.id, TIMESTAMP, body)
            headers = message.headers(fixed, told.id, TIMESTAMP, signed)
            transfer.prepare(Outgoing(None, urls[started % len(urls)], headers, body, TIMEOUT), target, 0.0)
            running[transfer.curl] = transfer
            multi.add_handle(transfer.curl)
            started += 1
        multi.perform()
        _, succeeded, failed = multi.info_read()
        if failed:
            raise SystemExit(f"a request failed: {failed[0][1:]}")
        for curl in succeeded:
            if curl.getinfo(pycurl.RESPONSE_CODE) != 200:
                raise SystemExit("a request was not answered with 200")
            multi.remove_handle(curl)
            idle.append(running.pop(curl))
        finished += len(succeeded)
        if not succeeded:
            multi.select(1.0)
    return count / (time.monotonic() - began)


def main() -> None:
    count, in_flight, *rest = sys.argv[1:]
    ca = "" if rest[0].startswith("http") else rest.pop(0)
    print(post(int(count), int(in_flight), rest, ca))


if __name__ == "__main__":
    main()
