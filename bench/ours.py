"""Gatepost as a target: `gatepost serve` with one client, one scope and a token request."""

import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

from bench.load import Target
from bench.peers.process import free_port
from tests import service

FORM = b"grant_type=client_credentials&scope=api%3Aread"
MEDIA = {"Content-Type": "application/x-www-form-urlencoded"}


def prepare(gatepost: service.Service) -> Target:
    """Define a client with the scope `api:read`, and return its token request."""
    if gatepost.first is None:
        raise RuntimeError("this store was used before")
    admin = gatepost.token(gatepost.first, "gatepost:clients gatepost:scopes")
    made = gatepost.post("/oauth/scopes", admin, {"name": "api:read", "resource": "https://api.example"})
    made.raise_for_status()
    client = gatepost.define_client(admin, scope="api:read")
    return Target(f"{gatepost.url}/oauth/tokens", MEDIA | {"Authorization": client.basic}, FORM)


@contextmanager
def running(
    directory: Path, database: str = "", settings: Mapping[str, Any] | None = None
) -> Iterator[tuple[service.Service, Target]]:
    with service.running(directory, database, **dict(settings or {})) as gatepost:
        yield gatepost, prepare(gatepost)


@contextmanager
def limit() -> Iterator[Target]:
    port = free_port()
    with tempfile.TemporaryFile() as log:
        process = Popen([sys.executable, "-m", "bench.limit", str(port)], stdin=PIPE, stdout=PIPE, stderr=log)
        try:
            if process.stdout is None or process.stdout.readline() != b"ready\n":
                raise RuntimeError("the limit did not start")
            client = service.Client("cli_limit", "gps_limit")
            yield Target(f"http://127.0.0.1:{port}/oauth/tokens", MEDIA | {"Authorization": client.basic}, FORM)
        finally:
            process.communicate()
