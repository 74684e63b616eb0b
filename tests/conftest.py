"""Fixtures of all folders: a PostgreSQL server for each test process, and a running Gatepost on each store."""

import gc
import itertools
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests import citus, postgres, service
from tests.scheduling import FileScheduling

_numbers = itertools.count()
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell and their children ignore it
# Write bytecode even if the environment forbids it, because the tests start hundreds of processes.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Without buffering, `print` writes a line in several parts, between which another process may write to the same file.
os.environ.pop("PYTHONUNBUFFERED", None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while tests are collected: thousands of objects are made, and all of them are kept."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling | None:
    return FileScheduling(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    with postgres.running() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: postgres.Server) -> Iterator[str]:
    """An empty database."""
    name = f"test_{next(_numbers)}"
    url = postgres_server.create_database(name)
    yield url
    postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def sqlite_gatepost(tmp_path_factory: pytest.TempPathFactory) -> Iterator[service.Service]:
    with service.running(tmp_path_factory.mktemp("gatepost") / "data", operator_console="true") as running:
        yield running


@pytest.fixture(scope="session")
def altered_gatepost(tmp_path_factory: pytest.TempPathFactory) -> Iterator[service.Service]:
    """A service in whose store tests alter entries and remove them, so that not all of its ledgers are intact."""
    with service.running(tmp_path_factory.mktemp("gatepost") / "data") as running:
        yield running


@pytest.fixture(scope="session")
def postgres_gatepost(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: postgres.Server
) -> Iterator[service.Service]:
    directory: Path = tmp_path_factory.mktemp("gatepost") / "data"
    database = postgres_server.create_database("gatepost")
    with service.running(directory, database, operator_console="true") as running:
        yield running


@pytest.fixture(scope="session")
def citus_gatepost(tmp_path_factory: pytest.TempPathFactory) -> Iterator[service.Service]:
    with citus.schema() as url:
        with psycopg.connect(url, autocommit=True) as database, citus.changing(database):
            citus.migrate_and_distribute(url)
        with service.running(tmp_path_factory.mktemp("gatepost") / "data", url, operator_console="true") as running:
            yield running


@pytest.fixture(scope="session", params=citus.STORES)
def gatepost(request: pytest.FixtureRequest) -> service.Service:
    """A running service on each store, shared by all tests of a process. Each test creates its own accounts."""
    found: service.Service = request.getfixturevalue(f"{request.param}_gatepost")
    return found


@pytest.fixture
def account_name() -> str:
    return f"t-{next(_numbers)}"
