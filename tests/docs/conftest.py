"""A reader who runs the commands of the pages against a service that was just started."""

from collections.abc import Iterator

import pytest

from tests import service
from tests.docs.reader import Reader
from tests.service import Client


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    directory = tmp_path_factory.mktemp("reader")
    with service.running(directory / "gatepost-data", operator_console="true") as running:
        yield Reader(directory, running)


@pytest.fixture(scope="session")
def first(reader: Reader) -> Client:
    found = reader.service.first
    assert found is not None, "the first start prints a client"
    return found
