"""Load generator: repeats one request over several connections for some seconds, and reports rate and latency.

It uses `wrk` if that is installed, and otherwise an asyncio generator in its own process, without the caller's GIL.
Responses other than 2xx count as errors, not as requests, so a failing server has no rate. Requests without a response
at the end count as neither, so no latency exceeds the run. The percentiles of wrk include all responses, and samples
for the requests that a stalled connection did not send; those of asyncio include the measured requests only.
"""

import asyncio
import json
import math
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import asdict, dataclass
from http.client import HTTPConnection
from pathlib import Path
from time import perf_counter
from urllib.parse import SplitResult, urlsplit

ROOT = Path(__file__).resolve().parents[1]
ASK_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Target:
    url: str
    headers: dict[str, str]
    body: bytes
    method: str = "POST"
    chain: tuple[str, ...] = ()  # refresh tokens, one for each connection, at the end of the body


@dataclass(frozen=True, slots=True)
class Sample:
    requests: int
    seconds: float
    rate: float
    p50_ms: float
    p99_ms: float
    errors: int


def name() -> str:
    return "wrk" if shutil.which("wrk") else "asyncio"


def measure(target: Target, connections: int, seconds: float) -> Sample:
    """Measure after one response, because a slow server may still be busy with requests of an earlier run."""
    if not target.chain:
        ask(target)
    how = with_wrk if name() == "wrk" else with_asyncio
    return how(target, connections, seconds)


def ask(target: Target) -> tuple[int, bytes]:
    """Send the request once, and return the status and the body of the response."""
    at = urlsplit(target.url)
    with closing(HTTPConnection(at.netloc, timeout=ASK_SECONDS)) as connection:
        connection.request(target.method, _path(at), target.body, target.headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


def _path(at: SplitResult) -> str:
    return (at.path or "/") + (f"?{at.query}" if at.query else "")


# wrk counts redirects as successes, so this script counts the responses.
SCRIPT = """
wrk.method, wrk.body, wrk.headers = {method}, {body}, {{{headers}}}
local threads = {{}}
function setup(thread) table.insert(threads, thread) end
function init() good, bad = 0, 0 end
function response(status{arguments})
  if status >= 200 and status < 300 then good = good + 1 else bad = bad + 1 end{following}
end
{chained}
function done(summary, latency)
  local good, failed, e = 0, 0, summary.errors
  for _, thread in ipairs(threads) do good, failed = good + thread:get("good"), failed + thread:get("bad") end
  print(string.format('{{"requests":%d,"seconds":%f,"p50_ms":%f,"p99_ms":%f,"errors":%d}}', good,
    summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    failed + e.connect + e.read + e.write + e.timeout))
end
"""


# With one thread, all connections share a pool of tokens: a request takes one, and its response returns the next. wrk
# also creates requests that it does not send, so there are more tokens than connections.
CHAINED = """
local waiting = {%s}
function request() return wrk.format(nil, nil, nil, wrk.body .. (table.remove(waiting) or "lost")) end
function keep(token) table.insert(waiting, token) end
"""
FOLLOWING = """
  keep(string.match(body, '"refresh_token":"([^"]+)"') or "lost")"""


def with_wrk(target: Target, connections: int, seconds: float) -> Sample:
    """Run wrk for whole seconds, rounded up, with a timeout that is longer than the run."""
    whole = math.ceil(seconds)
    headers = ", ".join(f"[{_lua(k.encode())}] = {_lua(v.encode())}" for k, v in target.headers.items())
    script = SCRIPT.format(
        method=_lua(target.method.encode()), body=_lua(target.body), headers=headers,
        arguments=", headers, body" if target.chain else "", following=FOLLOWING if target.chain else "",
        chained=CHAINED % ", ".join(_lua(each.encode()) for each in target.chain) if target.chain else "",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "request.lua")
        path.write_text(script)
        command = [
            "wrk",
            "-t1",
            f"-c{connections}",
            f"-d{whole}s",
            f"--timeout={whole + 1}s",
            "-s",
            str(path),
            target.url,
        ]
        out = subprocess.run(command, capture_output=True, text=True, timeout=whole + 30, check=True).stdout
    return _sample(json.loads(out.splitlines()[-1]))


def _lua(value: bytes) -> str:
    return '"' + "".join(f"\\{byte:03d}" for byte in value) + '"'


def _sample(counted: dict[str, float]) -> Sample:
    requests, seconds = int(counted["requests"]), counted["seconds"]
    return Sample(
        requests, seconds, requests / seconds, counted["p50_ms"], counted["p99_ms"], errors=int(counted["errors"])
    )


def with_asyncio(target: Target, connections: int, seconds: float) -> Sample:
    order = asdict(target) | {"body": target.body.decode("latin-1"), "connections": connections, "seconds": seconds}
    command = [sys.executable, "-m", "bench.load"]
    done = subprocess.run(
        command, input=json.dumps(order), cwd=ROOT, capture_output=True, text=True, timeout=seconds + 30, check=True
    )
    return _sample(json.loads(done.stdout))


def main() -> None:
    """Run the asyncio generator with the parameters on standard input, and print its counts."""
    order = json.load(sys.stdin)
    connections, seconds = order.pop("connections"), order.pop("seconds")
    target = Target(**order | {"body": order["body"].encode("latin-1")})
    print(json.dumps(asyncio.run(_drive(target, connections, seconds))))


async def _drive(target: Target, connections: int, seconds: float) -> dict[str, float]:
    latencies: list[float] = []
    errors: list[str] = []
    begun = perf_counter()
    tasks = [
        asyncio.create_task(_repeat(target, latencies, errors, target.chain[number] if target.chain else ""))
        for number in range(connections)
    ]
    broken, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    took = perf_counter() - begun
    for task in tasks:
        task.cancel()
    for task in broken:
        task.result()
    latencies.sort()

    def percentile(share: float) -> float:
        return latencies[math.ceil(share * len(latencies)) - 1] * 1e3 if latencies else 0.0

    count = {"requests": len(latencies), "seconds": took, "errors": len(errors)}
    return count | {"p50_ms": percentile(0.50), "p99_ms": percentile(0.99)}


async def _repeat(target: Target, latencies: list[float], errors: list[str], token: str) -> None:
    """Repeat the request on one connection, and reconnect if the server closes it."""
    loop, at = asyncio.get_running_loop(), urlsplit(target.url)
    headers = {"Host": at.netloc, "Content-Length": str(len(target.body) + len(token))} | target.headers
    head = "".join(f"{k}: {v}\r\n" for k, v in headers.items())
    start = f"{target.method} {_path(at)} HTTP/1.1\r\n{head}\r\n".encode() + target.body
    while True:
        try:
            with socket.socket() as sock:
                sock.setblocking(False)
                begun = perf_counter()
                await loop.sock_connect(sock, (at.hostname, at.port or 80))
                stays = True
                while stays:
                    await loop.sock_sendall(sock, start + token.encode())
                    status, stays, body = await _answer(loop, sock)
                    if token:
                        token = json.loads(body).get("refresh_token", token)
                    now = perf_counter()
                    if status.startswith(b"2"):
                        latencies.append(now - begun)
                    else:
                        errors.append(status.decode())
                    begun = now
        except OSError as error:
            errors.append(str(error))
            await asyncio.sleep(0.01)


async def _answer(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> tuple[bytes, bool, bytes]:
    """Read a response. Returns its status, whether the connection stays open, and its body."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += await _more(loop, sock)
    head, _, body = head.partition(b"\r\n\r\n")
    first, *lines = head.lower().split(b"\r\n")
    headers = {key: value.strip() for key, _, value in (line.partition(b":") for line in lines)}
    length = headers.get(b"content-length")
    if length is not None:
        while len(body) < int(length):
            body += await _more(loop, sock)
    elif headers.get(b"transfer-encoding") == b"chunked":
        while not body.endswith(b"0\r\n\r\n"):
            body += await _more(loop, sock)
    return first.split(b" ")[1], headers.get(b"connection") != b"close", body


async def _more(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> bytes:
    data = await loop.sock_recv(sock, 65536)
    if not data:
        raise ConnectionResetError("the server closed in the middle of an answer")
    return data


if __name__ == "__main__":
    main()
