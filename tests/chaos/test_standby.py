"""Commits that wait for a synchronous standby which is away. A failover lasts longer than callers wait."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests import postgres, service
from tests.login import Platform
from tests.waiting import LIMIT

GRACE = 10.0  # seconds, the default of `refresh_grace`


@contextmanager
def no_standby(server: postgres.Server) -> Iterator[None]:
    """Let every commit wait for a standby, until PostgreSQL cancels it. Here that is soon."""
    stop = threading.Event()

    def cancel() -> None:
        while not stop.wait(0.05):
            postgres.cancel_waiting(server)

    thread = threading.Thread(target=cancel)
    with postgres.configured(server, "synchronous_standby_names", "nobody"):
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(LIMIT)


def test_a_refresh_that_waits_for_a_standby_can_be_repeated(tmp_path: Path) -> None:
    """However long the standby is away. The grace period begins when the outcome was last unknown."""
    with ExitStack() as stack:
        server = stack.enter_context(postgres.running())
        gatepost = stack.enter_context(service.running(tmp_path / "data", server.create_database("refresh")))
        people = Platform(gatepost, "people")
        token = people.tokens()["refresh_token"]
        with no_standby(server):
            refused, until = 0, time.monotonic() + GRACE + 1
            while time.monotonic() < until or not refused:
                answer = people.refresh(token)
                refused += answer.status_code == 503
                assert answer.status_code in (200, 503), answer.text
        assert people.refresh(token).status_code == 200
        assert not people.entries("oauth.token.reused")
