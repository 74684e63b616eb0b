"""Token requests at a constant rate during a measurement: `python -m bench.beside URL AUTHORIZATION RATE`.

It prints when it starts. At the end of its standard input it prints the responses per second and the number of
responses other than 200.
"""

import asyncio
import json
import sys
import time
from urllib.parse import urlsplit

import uvloop

CONNECTIONS = 8
_FORM = b"grant_type=client_credentials&scope=api%3Aread"


async def ask(url: str, authorization: str, rate: float) -> dict[str, float]:
    at = urlsplit(url)
    request = (
        f"POST {at.path} HTTP/1.1\r\nHost: {at.netloc}\r\nAuthorization: {authorization}\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(_FORM)}\r\n\r\n"
    ).encode() + _FORM
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stopping.set)
    durations: list[float] = []
    bad = 0

    opened = [await asyncio.open_connection(at.hostname, at.port) for _ in range(CONNECTIONS)]
    print("ready", flush=True)

    async def one(place: int) -> None:
        nonlocal bad
        reader, writer = opened[place]
        due = time.monotonic() + place / rate
        while not stopping.is_set():
            await asyncio.sleep(max(0, due - time.monotonic()))
            due = max(due + CONNECTIONS / rate, time.monotonic() - 1)
            began = time.monotonic()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            durations.append(time.monotonic() - began)
            bad += not head.startswith(b"HTTP/1.1 200")
        writer.close()

    began = time.monotonic()
    await asyncio.gather(*[one(place) for place in range(CONNECTIONS)])
    ordered = sorted(durations)
    p99 = ordered[len(ordered) * 99 // 100] * 1000 if ordered else 0.0
    return {"rate": len(durations) / (time.monotonic() - began), "p99_ms": p99, "bad": bad}


if __name__ == "__main__":
    print(json.dumps(uvloop.run(ask(sys.argv[1], sys.argv[2], float(sys.argv[3])))))
