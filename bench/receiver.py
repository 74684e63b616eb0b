"""A minimal receiver of webhooks: `python -m bench.receiver PORT [CERTIFICATE KEY]`.

It responds to every POST with 200: to paths that start with /slow after 200 ms, and to /hole not at all. If a body
contains `"sent":<ns since the epoch>`, it records the latency. The commands on its standard input are `reset`, `count`
and `stats`.
"""

import asyncio
import json
import ssl
import sys
import time
from array import array
from typing import Any

import uvloop

_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
_MARK = b'"sent":'


class State:
    count = 0
    latencies = array("d")


class Receiver(asyncio.Protocol):
    def __init__(self) -> None:
        self._rest = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        data = self._rest + data if self._rest else data
        while True:
            head = data.find(b"\r\n\r\n")
            if head < 0:
                break
            at = data.find(b"ontent-", 0, head)
            while at >= 0 and data[at + 7 : at + 14].lower() != b"length:":
                at = data.find(b"ontent-", at + 7, head)
            end = head + 4 + int(data[at + 14 : data.find(b"\r\n", at)])
            if len(data) < end:
                break
            if data.startswith(b"POST /slow"):
                asyncio.get_running_loop().call_later(0.2, self._take, data[head + 4 : end])
            elif not data.startswith(b"POST /hole"):
                self._take(data[head + 4 : end])
            data = data[end:]
        self._rest = data

    def _take(self, body: bytes) -> None:
        self._transport.write(_ANSWER)
        State.count += 1
        at = body.find(_MARK)
        if at >= 0:
            start = at + len(_MARK)
            sent = int(body[start : start + 19])
            State.latencies.append((time.time_ns() - sent) / 1e6)


def _control() -> None:
    word = sys.stdin.readline().strip()
    if not word:
        asyncio.get_running_loop().stop()
        return
    if word == "reset":
        State.count, State.latencies = 0, array("d")
    found: dict[str, Any] = {"count": State.count}
    if word == "stats":
        ordered = sorted(State.latencies)
        found |= {f"p{share}": ordered[len(ordered) * share // 100] for share in (50, 99) if ordered}
    print(json.dumps(found), flush=True)


async def _serve(port: int, certificate: list[str]) -> None:
    context = None
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
    loop = asyncio.get_running_loop()
    await loop.create_server(Receiver, "127.0.0.1", port, ssl=context, backlog=4096)
    loop.add_reader(sys.stdin.fileno(), _control)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        uvloop.run(_serve(int(sys.argv[1]), sys.argv[2:4]))
    except RuntimeError:
        sys.exit(0)  # its standard input has ended
