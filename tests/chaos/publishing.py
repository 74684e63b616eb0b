"""Threads that publish events in a loop, each until it is acknowledged, and the check that all were delivered."""

import json
from collections import Counter
from functools import partial

from tests.chaos.load import BROKEN, LONG, PAUSE, Threads, open_session
from tests.flows.shop import Shop, platform
from tests.waiting import wait_until

_TYPE = "application/cloudevents+json"


class Publishing(Threads):
    """Publishes to `POST /events` until the context ends. An event without an answer is sent again with its id."""

    def __init__(self, shop: Shop, threads: int = 2, pause: float = 0.02) -> None:
        super().__init__(partial(self._publish, number) for number in range(threads))
        self._shop = shop
        self._token = shop.gatepost.token(shop.client, "gatepost:events")
        self._pause = pause
        self.deliveries: dict[str, list[str]] = {}  # of acknowledged events, by the event's own id
        self.unexpected: list[str] = []

    def wait_for_events(self, more: int) -> None:
        wanted = len(self.deliveries) + more
        wait_until(lambda: len(self.deliveries) >= wanted, f"{more} more events, after {len(self.deliveries)}")

    def _publish(self, thread: int) -> None:
        session = open_session()
        number = 0
        while not self._stop.is_set():
            name = f"{thread}-{number}"
            try:
                answer = session.post(
                    f"{self._shop.gatepost.ops}/events", data=json.dumps(_event(name)), timeout=LONG,
                    headers={"Authorization": f"Bearer {self._token}", "Content-Type": _TYPE},
                )  # fmt: skip
            except BROKEN:
                session.close()
                self._stop.wait(PAUSE)
                continue
            if answer.status_code == 200:
                self.deliveries[name] = answer.json()["deliveries"]
                number += 1
                self._stop.wait(self._pause)
            elif answer.status_code == 503:
                self._stop.wait(PAUSE)
            else:
                self.unexpected.append(f"{answer.status_code} {answer.text}")
                return
        session.close()


def _event(name: str) -> dict[str, object]:
    return {"specversion": "1.0", "id": name, "source": "/billing", "type": "invoice.paid", "data": name}


def check_events(shop: Shop, publishing: Publishing) -> None:
    """Check that every acknowledged event is in the ledger once, was received, and that its attempts are recorded."""
    assert publishing.unexpected == []
    assert publishing.deliveries
    recorded = Counter(platform(shop, limit=100_000))
    assert set(recorded.values()) == {1}
    assert set(publishing.deliveries) <= set(recorded)
    attempts: dict[str, int] = {}
    for name, [delivery] in publishing.deliveries.items():
        record = shop.status(delivery, "succeeded")
        numbers = [attempt["number"] for attempt in record["attempts"]]
        assert numbers == list(range(1, len(numbers) + 1)), name
        assert record["attempts"][-1]["outcome"] == "succeeded"
        attempts[name] = len(numbers)
    received = Counter(json.loads(request.body)["data"] for request in shop.receiver.requests)
    assert set(attempts) <= set(received)
    hidden = {name: count for name, count in received.items() if count > attempts.get(name, count)}
    assert hidden == {}, "requests that no attempt records"
