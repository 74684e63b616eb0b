"""The service runs out of files, ports, threads or memory: that is never recorded as a receiver's failure.

Limits belong to a process and ports to a network namespace, so each shortage is made in a process of its own.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import pytest
import requests

from gatepost.cli.doctor import FEW_FILES
from gatepost.egress import transfer
from gatepost.egress.resolver import addresses
from gatepost.egress.transfer import SendResult
from tests import service
from tests.flows.test_delivery import Platform
from tests.flows.test_send import post, posting, run
from tests.receiver import Authority, Connection, Raw, receiver
from tests.waiting import LIMIT

T = TypeVar("T")
MIB = 1 << 20


def elsewhere(function: Callable[..., T], *arguments: object) -> T:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


@contextlib.contextmanager
def few_files(spare: int) -> Iterator[None]:
    """So many more can be opened."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 10, before[1]))
    held = []
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.dup(0))
        for _ in range(spare):
            os.close(held.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for each in held:
            os.close(each)


def test_a_shortage_after_the_request_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The receiver may have acted on the request, so the attempt is not recorded as not sent."""

    def close_without_response(connection: Connection) -> None:
        connection.read()

    monkeypatch.setattr(transfer, "of_transfer", lambda *_: "memory")
    with receiver(Raw(close_without_response)) as r:
        sent = post(r.url)
    assert (sent.failure, sent.shortage) == ("first_byte", "")


def looked_up_with_few_files(spare: int) -> tuple[str, str, str]:
    async def story() -> tuple[SendResult, SendResult]:
        async with posting(look_up=looking_up) as to:
            with few_files(spare):
                short = await to("http://receiver.invalid/")
            return short, await to("http://receiver.invalid/")

    def looking_up(name: str, port: int) -> list[str]:
        """Use the resolver of the system once. Later lookups fail without a request to a name server."""
        if len(asked) == 1:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        asked.append(name)
        return addresses(name, port)

    asked: list[str] = []
    short, sent = run(story())
    return short.shortage, sent.shortage, sent.failure or ""


@pytest.mark.parametrize("spare", [0, 1, 2, 3])
def test_a_look_up_that_lacks_files(spare: int) -> None:
    """The system's resolver then says that the name does not exist."""
    assert elsewhere(looked_up_with_few_files, spare) == ("files", "", "dns")


def looked_up_without_threads() -> tuple[str, str, int | None]:
    """Each thread would have a larger stack than the process may have memory."""

    async def story(port: int) -> tuple[SendResult, SendResult]:
        async with posting(look_up=lambda *_: ["127.0.0.1"]) as to:
            size, before = threading.stack_size(1024 * MIB), resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (memory_used() + 256 * MIB, before[1]))
            try:
                short = await to(f"http://receiver.test:{port}/")
            finally:
                threading.stack_size(size)
                resource.setrlimit(resource.RLIMIT_AS, before)
            return short, await to(f"http://receiver.test:{port}/")

    with receiver() as found:
        short, sent = run(story(found.port))
    return short.shortage, sent.shortage, sent.code


def memory_used() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def test_a_look_up_that_lacks_a_thread() -> None:
    assert elsewhere(looked_up_without_threads) == ("threads", "", 200)


CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1


def sent_without_ports() -> tuple[str, str, int | None] | None:
    """In a network of its own with two ports for connections. None where that is not permitted."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))

    async def story(url: str, port: int) -> tuple[SendResult, SendResult]:
        async with posting() as to:
            with contextlib.ExitStack() as held:
                for _ in range(2):
                    held.enter_context(socket.create_connection(("127.0.0.1", port)))
                short = await to(url)
            use_ports(40000, 50000)
            return short, await to(url)

    with receiver() as found:
        use_ports(40000, 40001)
        short, sent = run(story(found.url, found.port))
    return short.shortage, sent.shortage, sent.code


def use_ports(first: int, last: int) -> None:
    Path("/proc/sys/net/ipv4/ip_local_port_range").write_text(f"{first} {last}")


def test_a_connection_that_lacks_a_port() -> None:
    found = elsewhere(sent_without_ports)
    if found is None:
        pytest.skip("creating a network namespace is not permitted on this machine")
    assert found == ("ports", "", 200)


# --- the file of certificate authorities


def test_a_delivery_while_the_authorities_cannot_be_read(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    file = tmp_path / "authorities.pem"
    content = authority.file.read_bytes()
    file.write_bytes(content)
    with (
        service.running(tmp_path / "data", egress_ca=str(file)) as running,
        receiver(tls=authority.context("127.0.0.1")) as r,
    ):
        platform = Platform(running, "acme")
        file.unlink()
        endpoint = platform.connect(r.url, retry_schedule=[3600])
        delivery = platform.send()
        first = platform.once(delivery, "pending", 1)["attempts"][0]
        assert (first["outcome"], first["failure"]) == ("not_sent", None)
        assert first["detail"] == "not sent: the service could not read its certificate authorities"
        assert platform.redefine(endpoint)["health"]["failing_since"] is None
        file.write_bytes(content)
        record = platform.once(delivery, "succeeded")
        assert {attempt["outcome"] for attempt in record["attempts"][:-1]} == {"not_sent"}
        assert len(r.requests) == 1
        metrics = requests.get(f"{running.ops}/metrics", timeout=LIMIT).text
    assert 'gatepost_shortages_total{resource="authorities"}' in metrics
    lines = map(json.loads, (tmp_path / "data.log").read_text().splitlines())
    assert str(file) in {line.get("file") for line in lines}


# --- the limit of open files


@pytest.mark.parametrize(("most", "status"), [(FEW_FILES - 1, "warning"), (FEW_FILES, "ok")])
def test_doctor_checks_how_many_files_may_be_open(tmp_path: Path, most: int, status: str) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < most:
        pytest.skip(f"the hard limit of open files on this machine is below the {most} that the test sets")
    program = (
        f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({most}, {most}))\n"
        "from gatepost.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "doctor", "--json"], env=service.environment(tmp_path / "data", ""),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    [check] = [each for each in json.loads(done.stdout) if each["check"] == "files"]
    assert check["status"] == status
    assert (str(most) in check["found"]) == (status == "warning")


def test_serve_raises_its_limit_of_open_files(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft // 2, hard))
    try:
        with service.running(tmp_path / "data") as running:
            children = running.web_processes() + running.delivery_processes() + running.operations_processes()
            for process in (running.process.pid, *children):
                assert resource.prlimit(process, resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
