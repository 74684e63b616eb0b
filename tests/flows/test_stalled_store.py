"""A store that stands still, is gone, full or read-only: the key set is served, and /readyz says what is wrong."""

import resource
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
import requests

from tests.service import Service, running
from tests.waiting import LIMIT, LIMIT_MS, wait_until

DOCUMENTS = (
    "/oauth/jwks",
    "/.well-known/openid-configuration",
    "/.well-known/oauth-authorization-server",
    "/.well-known/oauth-protected-resource",
)


STORES = [pytest.param(store, marks=pytest.mark.xdist_group(f"stalled-{store}")) for store in ("sqlite", "postgres")]


@pytest.fixture(scope="module", params=STORES)
def own(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service for this file, which is ready again after each test."""
    server = request.getfixturevalue("postgres_server") if request.param == "postgres" else None
    url = server.create_database("stalled") if server else ""
    with running(tmp_path_factory.mktemp("stalled") / "data", url) as found:
        yield found


@pytest.fixture(params=["sqlite", "postgres"])
def new(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    """A service that has answered no request yet."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
    with running(tmp_path / "data", url, only="web") as found:
        yield found


@contextmanager
def gone(own: Service) -> Iterator[None]:
    """No read is answered."""
    if own.database:
        with locked(own):
            yield
        return
    file = own.directory / "gatepost.db"
    away = file.rename(file.with_suffix(".away"))
    try:
        yield
    finally:
        away.rename(file)


@contextmanager
def locked(own: Service) -> Iterator[None]:
    """No write succeeds, because another process holds the lock."""
    if own.database:
        with psycopg.connect(own.database) as database:
            database.execute("LOCK TABLE counters IN ACCESS EXCLUSIVE MODE")
            yield
            database.rollback()
        return
    with closing(apsw.Connection(str(own.directory / "gatepost.db"))) as file:
        file.set_busy_timeout(LIMIT_MS)
        file.execute("BEGIN IMMEDIATE")
        yield
        file.execute("ROLLBACK")


@contextmanager
def not_writable(own: Service) -> Iterator[None]:
    """Reads are answered, writes are refused at once: a full disk, or a database that became read-only."""
    if own.database:
        _set_read_only(own.database, "on")
        yield
        _set_read_only(own.database, "off")
        return
    everyone = [own.process.pid, *own.web_processes(), *own.operations_processes()]
    before = {process: resource.prlimit(process, resource.RLIMIT_FSIZE) for process in everyone}
    for process, (_, hard) in before.items():
        resource.prlimit(process, resource.RLIMIT_FSIZE, (0, hard))
    yield
    for process, limits in before.items():
        resource.prlimit(process, resource.RLIMIT_FSIZE, limits)


def _set_read_only(url: str, value: str) -> None:
    with psycopg.connect(url, autocommit=True) as database:
        database.execute("SET default_transaction_read_only = off")
        name = database.info.dbname
        database.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {value}".encode())
        database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
            (name,),
        )


def test_the_key_set_and_discovery_are_served_from_memory(new: Service) -> None:
    with gone(new):
        for path in DOCUMENTS:
            answer = requests.get(f"{new.url}{path}", timeout=LIMIT)
            assert answer.status_code == 200, answer.text
        assert len(requests.get(f"{new.url}/oauth/jwks", timeout=LIMIT).json()["keys"]) == 6


def readiness(own: Service) -> tuple[int, dict[str, Any]]:
    answer = requests.get(f"{own.ops}/readyz", timeout=LIMIT)
    return answer.status_code, answer.json()


def until(own: Service, status: int) -> dict[str, Any]:
    """What /readyz says once it has this status."""
    wait_until(lambda: readiness(own)[0] == status, f"/readyz to have the status {status}")
    return readiness(own)[1]


def test_checkpoints_are_unavailable_while_the_store_is(new: Service) -> None:
    with gone(new):
        answer = requests.get(f"{new.ops}/checkpoints", timeout=LIMIT)
        assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
        assert answer.json()["code"] == "temporarily_unavailable"
        assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize("fault", [gone, locked, not_writable])
def test_a_service_that_cannot_write_is_not_ready(own: Service, fault: Any) -> None:
    assert until(own, 200) == {"status": "ready"}
    with fault(own):
        found = until(own, 503)
        assert found["status"] == "not ready"
        assert "the store" in found["because"]
        assert requests.get(f"{own.ops}/healthz", timeout=LIMIT).status_code == 200
    assert until(own, 200) == {"status": "ready"}


def test_a_changed_key_set_is_served_soon(own: Service) -> None:
    def kids() -> set[str]:
        return {key["kid"] for key in requests.get(f"{own.url}/oauth/jwks", timeout=LIMIT).json()["keys"]}

    before = kids()
    own.cli("key", "rotate", "--now", "--alg", "ES256")
    wait_until(lambda: kids() != before, "the new key set")
