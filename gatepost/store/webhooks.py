"""What the webhook area may ask of storage: endpoints, subscriptions, deliveries, and the worker's queue.

Ids are text where people see them and bytes where rows are handled by the thousand.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple, Protocol, cast

import msgspec

from gatepost.core import clock, ids
from gatepost.ledger.entries import Entry
from gatepost.webhooks.deliveries import Attempt, Delivery, Ending, Queued
from gatepost.webhooks.endpoints import Endpoint, Health
from gatepost.webhooks.subscriptions import Replay, Subscription

_endpoint = msgspec.json.Decoder(Endpoint)
_subscription = msgspec.json.Decoder(Subscription)
_replay = msgspec.json.Decoder(Replay)
_encode = msgspec.json.Encoder().encode

Key = tuple[bytes, bytes]  # an account and something of it


class Connection(Protocol):
    def rows(self, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]: ...
    def write(self, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]: ...
    def rows_each(self, statement: str, parameters: list[dict[str, Any]]) -> list[list[tuple[Any, ...]]]: ...
    def rows_given(self, statement: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]: ...
    def write_given(self, statement: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]: ...


class Lane(NamedTuple):
    """Deliveries of one endpoint that wait: first attempts or retries, and when the first of them is due."""

    account: bytes
    endpoint: bytes
    lane: int
    due: int


class Due(NamedTuple):
    """A delivery whose time has come, with the event it is about, and the last Retry-After of its endpoint."""

    queued: Queued
    type: str
    at: int
    data: str | None
    not_before: int


class NextDue(NamedTuple):
    """When the first delivery of a lane is due, by the plan; and until when its endpoint asked for no attempts."""

    due: int | None
    not_before: int


class Worker(NamedTuple):
    id: bytes
    place: str
    beat_at: int


class Running(NamedTuple):
    """A replay: how far it came, and what it is to do."""

    account: str
    id: str
    subscription: str
    state: str
    position: bytes
    examined: int
    made: int
    asked: Replay


class Webhooks:
    """One unit's view of these tables."""

    def __init__(
        self, connection: Connection, at: datetime,
        cached: Callable[[str, Callable[[], Any]], Any], change: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._connection = connection
        self._at = at
        self._cached = cached
        self._change = change

    def _one(self, statement: str, **parameters: Any) -> tuple[Any, ...] | None:
        found = self._connection.rows(statement, parameters)
        return found[0] if found else None

    def _all(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return self._connection.rows(statement, parameters)

    def _write(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return self._connection.write(statement, parameters)

    # --- endpoints

    def endpoint(self, account: str, endpoint: str) -> Endpoint | None:
        return self._cached(f"endpoint {account} {endpoint}", lambda: self.endpoint_as_stored(account, endpoint))  # type: ignore[no-any-return]

    def endpoint_as_stored(self, account: str, endpoint: str) -> Endpoint | None:
        raw = ids.parse("ep", endpoint)
        found = self._one("endpoint_by_id", account=ids.raw(account), id=raw) if raw else None
        return _endpoint.decode(found[0]) if found else None

    def endpoints(self, account: str, after: bytes, limit: int) -> list[Endpoint]:
        rows = self._all("list_endpoints", account=ids.raw(account), after=after, limit=limit)
        return [_endpoint.decode(row[0]) for row in rows]

    def count_endpoints(self, account: str) -> int:
        return int(self._all("count_endpoints", account=ids.raw(account))[0][0])

    def standing_still(self, after: Key, limit: int) -> list[Key]:
        """Endpoints that are disabled or removed while something waits for them, of all accounts, page by page."""
        rows = self._all("endpoints_not_active", account=after[0], after=after[1], limit=limit)
        return [(account, endpoint) for account, endpoint in rows]

    def add_endpoint(self, endpoint: Endpoint) -> None:
        self._put_endpoint("insert_endpoint", endpoint)

    def put_endpoint(self, endpoint: Endpoint) -> None:
        self._put_endpoint("update_endpoint", endpoint)
        self._change(f"endpoint {endpoint.account} {endpoint.id}")
        if endpoint.status == "removed":
            self._change(f"subscriptions {endpoint.account}")

    def _put_endpoint(self, statement: str, endpoint: Endpoint) -> None:
        self._write(
            statement, account=ids.raw(endpoint.account), id=ids.raw(endpoint.id), status=endpoint.status,
            document=_encode(endpoint).decode(),
        )  # fmt: skip

    def health(self, account: str, endpoint: str) -> Health | None:
        found = self._one("health", account=ids.raw(account), endpoint=ids.raw(endpoint))
        return _health(*found) if found else None

    def recover(self, endpoints: Iterable[Key]) -> None:
        """An attempt to each of these succeeded. Their Retry-After stays: the attempt may have begun before it."""
        self._connection.write_given("recover", sorted(endpoints))

    def worsen(self, key: Key, failures: int, since: int | None, not_before: int) -> Health:
        """Some attempts in a row failed, the first of them then; or one asked for no attempts before an instant."""
        [row] = self._write(
            "worsen", account=key[0], endpoint=key[1], failures=failures, failing_since=since, not_before=not_before
        )
        return _health(*row)

    def reset_health(self, key: Key) -> None:
        """The endpoint is resumed: what was known of it, its Retry-After too, no longer counts."""
        self._write("delete_health", account=key[0], endpoint=key[1])
        self._write("plan_without_retry_after", account=key[0], endpoint=key[1])

    def lift_retry_after(self, key: Key) -> bool:
        """Whether there was one to lift."""
        lifted = self._write("lift_retry_after", account=key[0], endpoint=key[1], now=clock.milliseconds(self._at))
        if lifted:
            self._write("plan_without_retry_after", account=key[0], endpoint=key[1])
        return bool(lifted)

    def retry_afters(self) -> dict[Key, int]:
        """The endpoints that asked for no attempts for now, and until when."""
        rows = self._all("retry_afters", now=clock.milliseconds(self._at))
        return {(account, endpoint): not_before for account, endpoint, not_before in rows}

    def has_recovered_health(self) -> bool:
        return self._one("recovered_health", before=self._recovered_before()) is not None

    def delete_recovered_health(self) -> None:
        """Rows of endpoints that are well and whose Retry-After is over."""
        self._write("delete_recovered_health", before=self._recovered_before())

    def _recovered_before(self) -> int:
        """A little ago: attempts that waited for a Retry-After until just now have yet to be put on record."""
        return clock.milliseconds(self._at) - 60_000

    # --- subscriptions

    def subscription_as_stored(self, account: str, subscription: str) -> Subscription | None:
        raw = ids.parse("sub", subscription)
        found = self._one("subscription_by_id", account=ids.raw(account), id=raw) if raw else None
        return _subscription.decode(found[0]) if found else None

    def subscriptions(self, account: str, after: bytes, limit: int) -> list[Subscription]:
        rows = self._all("list_subscriptions", account=ids.raw(account), after=after, limit=limit)
        return [_subscription.decode(row[0]) for row in rows]

    def subscriptions_of(self, account: str, endpoint: str) -> list[Subscription]:
        rows = self._all("subscriptions_of_endpoint", account=ids.raw(account), endpoint=ids.raw(endpoint))
        return [_subscription.decode(row[0]) for row in rows]

    def matching(self, account: str) -> tuple[Subscription, ...]:
        """Those that new entries are matched with: active, of an endpoint that is still there."""

        def load() -> tuple[Subscription, ...]:
            rows = self._all("matching_subscriptions", account=ids.raw(account))
            return tuple(_subscription.decode(row[0]) for row in rows)

        return self._cached(f"subscriptions {account}", load)  # type: ignore[no-any-return]

    def count_subscriptions(self, account: str) -> int:
        return int(self._all("count_subscriptions", account=ids.raw(account))[0][0])

    def add_subscription(self, subscription: Subscription) -> None:
        self._put_subscription("insert_subscription", subscription, endpoint=ids.raw(subscription.endpoint))

    def put_subscription(self, subscription: Subscription) -> None:
        self._put_subscription("update_subscription", subscription)

    def _put_subscription(self, statement: str, subscription: Subscription, **more: Any) -> None:
        self._write(
            statement, account=ids.raw(subscription.account), id=ids.raw(subscription.id),
            status=subscription.status, document=_encode(subscription).decode(), **more,
        )  # fmt: skip
        self._change(f"subscriptions {subscription.account}")

    # --- counting, for metrics

    def count_waiting(self, limit: int) -> dict[Key, tuple[int, int]]:
        """Deliveries that are not ended, by endpoint: all of them, and those in flight. Counted up to the limit."""
        rows = self._all("count_queue", limit=limit)
        return {(account, endpoint): (count, in_flight) for account, endpoint, count, in_flight in rows}

    def count_replays(self) -> tuple[int, int, int]:
        """Those under way: how many, events examined, deliveries made."""
        [(running, examined, made)] = self._all("count_replays")
        return running, int(examined), int(made)

    # --- replays

    def add_replay(self, account: str, replay: str, subscription: str, asked: Replay, position: bytes) -> None:
        self._write(
            "insert_replay", account=ids.raw(account), id=ids.raw(replay), subscription=ids.raw(subscription),
            position=position, document=_encode(asked).decode(),
        )  # fmt: skip

    def running_replays(self) -> list[tuple[str, str]]:
        return [(ids.text("acc", account), ids.text("rpl", raw_id)) for account, raw_id in self._all("running_replays")]

    def lock_replay(self, account: str, replay: str) -> Running | None:
        """None when it ended, or another worker has it now."""
        found = self._one("lock_replay", account=ids.raw(account), id=ids.raw(replay))
        return _running(found) if found else None

    def last_replay(self, account: str, subscription: str) -> Running | None:
        found = self._one("last_replay", account=ids.raw(account), subscription=ids.raw(subscription))
        return _running(found) if found else None

    def move_replay(self, replay: Running) -> None:
        self._write(
            "move_replay", account=ids.raw(replay.account), id=ids.raw(replay.id), state=replay.state,
            position=replay.position, examined=replay.examined, made=replay.made,
        )  # fmt: skip

    # --- publishing

    def add_published(self, account: str, name: bytes, event: bytes, body: bytes) -> bool:
        """True for the first to publish under this name; the insert decides."""
        return bool(self._write("insert_published", account=ids.raw(account), name=name, event=event, body=body))

    def published(self, account: str, name: bytes) -> tuple[bytes, bytes] | None:
        """The event that has this name, and the hash of its body."""
        found = self._one("published", account=ids.raw(account), name=name)
        return (found[0], found[1]) if found else None

    def forget_published(self, events: Iterable[Key]) -> None:
        self._connection.write_given("forget_published", list(events))

    def outbox(self, limit: int) -> list[tuple[int, str, str, str, str | None]]:
        """Rows that programs put there: number, account, type, data, id. Locked until the commit."""
        return [(row[0], row[1], row[2], row[3], row[4]) for row in self._all("outbox", limit=limit)]

    def leave_outbox(self, numbers: Iterable[int], refused: Iterable[tuple[int, str]]) -> None:
        self._connection.write_given("leave_outbox", [(number,) for number in numbers])
        self._connection.write_given("refuse_outbox", list(refused))

    # --- the worker

    def beat(self, worker: bytes, place: str) -> None:
        self._write("beat", id=worker, place=place, at=clock.milliseconds(self._at))

    def workers(self) -> list[Worker]:
        return [Worker(*row) for row in self._all("workers")]

    def forget_worker(self, worker: Worker) -> None:
        """Unless it beat again meanwhile."""
        self._write("forget_worker", id=worker.id, beat_at=worker.beat_at)

    def open_attempts(self, worker: bytes, limit: int) -> list[Queued]:
        return [Queued(*row) for row in self._all("open_attempts", worker=worker, limit=limit)]

    def lanes(self, after: Lane, limit: int) -> list[Lane]:
        """Lanes with something to claim, by account, endpoint and lane. May be fewer than `limit`; none is the end."""
        rows = self._all(
            "lanes", account=after.account, endpoint=after.endpoint, lane=after.lane, limit=limit,
            now=clock.milliseconds(self._at),
        )  # fmt: skip
        return [Lane(*row) for row in rows]

    def next_due(self, lanes: Iterable[Lane]) -> list[NextDue]:
        """When the first of each is due that could be claimed; None when there is none."""
        now = clock.milliseconds(self._at)
        asked = [{"account": each.account, "endpoint": each.endpoint, "lane": each.lane, "now": now} for each in lanes]
        found = self._connection.rows_each("next_due", asked)
        return [NextDue(rows[0][0], rows[0][1] or 0) if rows else NextDue(None, 0) for rows in found]

    def due(self, wanted: Iterable[tuple[Lane, tuple[int, bytes], int]]) -> list[list[Due]]:
        """Of each lane the first so many that are due, after a position; nobody else gets them until the commit.

        Nothing of an endpoint that asked for no attempts for now.
        """
        now = clock.milliseconds(self._at)
        asked = [
            {
                "account": lane.account, "endpoint": lane.endpoint, "lane": lane.lane, "now": now,
                "after_due": after[0], "after_id": after[1], "most": limit,
            }
            for lane, after, limit in wanted
        ]  # fmt: skip
        found = self._connection.rows_each("due", asked)
        return [
            [Due(Queued._make(row[:-4]), row[-4], row[-3], row[-2], row[-1] or 0) for row in rows] for rows in found
        ]

    def claim(self, claims: list[tuple[bytes, bytes, int, bytes, str]]) -> None:
        """Account, id, end of the lease, worker, the attempt as opened. Call only for what `due` gave in this unit."""
        self._connection.write_given("claim", sorted(claims))

    def end_queued(self, fenced: Iterable[tuple[bytes, bytes, int]]) -> set[Key]:
        """End what has an attempt open, or interrupted and not made again: which they were. The number is the fence."""
        return self._write_keyed("end_queued", fenced)

    def drop_queued(self, fenced: Iterable[tuple[bytes, bytes, int]]) -> set[Key]:
        """End what is at rest, or whatever it does, if nobody claimed it since it was read: which they were."""
        return self._write_keyed("drop_queued", fenced)

    def hurry(self, queued: Queued, due: int) -> bool:
        """Make the next attempt then; False when one was begun meanwhile."""
        found = self._write("hurry", account=queued.account, id=queued.id, number=queued.number, due=due)
        return bool(found)

    def requeue(self, rows: Iterable[tuple[bytes, bytes, int, int, int, str, int, int]]) -> set[Key]:
        """Account, id, number, due, planned_at, because, used, interrupted: to be tried again, under the same fence.

        `due` is by the plan. `planned_at` is for the record: it includes the answer's own Retry-After.
        """
        return self._write_keyed("requeue", rows)

    def _write_keyed(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> set[Key]:
        """The keys of the rows that were as they were said to be. Everybody takes them in one order."""
        return cast(set[Key], set(self._connection.write_given(statement, sorted(rows))))

    def write_records(self, endings: Iterable[Ending]) -> None:
        self._connection.write_given("write_records", sorted(endings, key=itemgetter(0, 1)))

    def write_attempts(self, attempts: Iterable[Attempt]) -> None:
        self._connection.write_given("write_attempts", sorted(attempts))

    # --- deliveries

    def delivery(self, account: str, delivery: str) -> Delivery | None:
        raw = ids.parse("dlv", delivery)
        found = self._one("delivery", account=ids.raw(account), id=raw) if raw else None
        return Delivery(*found) if found else None

    def deliveries(self, keys: Iterable[Key]) -> dict[Key, Delivery]:
        rows = self._connection.rows_given("deliveries_given", list(keys))
        return {(row[0], row[1]): Delivery(*row) for row in rows}

    def queued(self, keys: Iterable[Key]) -> dict[Key, Queued]:
        return {(row[0], row[1]): Queued(*row) for row in self._connection.rows_given("queued_given", list(keys))}

    def attempts(self, keys: Iterable[Key]) -> dict[Key, list[Attempt]]:
        found: dict[Key, list[Attempt]] = {}
        for row in self._connection.rows_given("attempts_given", list(keys)):
            found.setdefault((row[0], row[1]), []).append(Attempt(*row))
        return found

    def entries(self, keys: Iterable[Key]) -> dict[Key, Entry]:
        rows = self._connection.rows_given("entries_given", list(keys))
        return {(row[0], row[1]): Entry(ids.text("acc", row[0]), *row[1:]) for row in rows}

    def lock_queued(self, account: str, raw_id: bytes) -> Queued | None:
        found = self._one("lock_queued", account=ids.raw(account), id=raw_id)
        return Queued(*found) if found else None

    def queued_of(self, key: Key, before: bytes, limit: int) -> list[Queued]:
        """Of one endpoint, made before this id, with no attempt open, or one whose worker is gone."""
        now = clock.milliseconds(self._at)
        rows = self._all("queued_of_endpoint", account=key[0], endpoint=key[1], before=before, limit=limit, now=now)
        return [Queued(*row) for row in rows]

    def waits_for(self, key: Key, before: bytes) -> bool:
        """Whether anything does that was made before this id."""
        return self._one("waits_for_endpoint", account=key[0], endpoint=key[1], before=before) is not None

    def count_queued_of(self, account: str, endpoint: str, limit: int) -> int:
        [(count,)] = self._all(
            "count_queued_of_endpoint", account=ids.raw(account), endpoint=ids.raw(endpoint), limit=limit
        )
        return int(count)

    def oldest_queued(self, account: str) -> bytes | None:
        found = self._one("oldest_queued", account=ids.raw(account))
        return found[0] if found else None

    def deliveries_of_event(self, account: str, event: bytes, limit: int) -> list[bytes]:
        """Those that the event made itself, without those of replays and of operators."""
        rows = self._all("deliveries_of_event", account=ids.raw(account), event=event, limit=limit)
        return [raw_id for (raw_id,) in rows]

    def has_failed(self, account: str, event: bytes, subscription: str) -> bool:
        found = self._one(
            "has_failed_delivery", account=ids.raw(account), event=event, subscription=ids.raw(subscription)
        )
        return found is not None

    # --- counts

    def tallied(self, account: str, since: int, until: int) -> list[tuple[int, str, int]]:
        """Start of the minute or hour in seconds, what, how many."""
        rows = self._all("tallied", account=ids.raw(account), since=since, until=until)
        return [(start, what, int(count)) for start, what, count in rows]

    def roll_up(self, before: int, limit: int) -> int:
        """Some of the minutes before then become hours."""
        rows = self._write("old_minutes", before=before, limit=limit)
        hours: dict[tuple[bytes, int, int, int, str], int] = {}
        for account, since, what, count in rows:
            key = (account, since // 3600 * 3600, 3600, 0, what)
            hours[key] = hours.get(key, 0) + count
        self._connection.write_given("tally", sorted((*key, count) for key, count in hours.items()))
        return len(rows)

    def forget_tallies(self, before: int, limit: int) -> int:
        return len(self._write("forget_tallies", before=before, limit=limit))

    # --- pruning

    def prunable(self, account: str, after: bytes, before: bytes, limit: int) -> list[tuple[bytes, int, str]]:
        """Id, days kept and status of the oldest deliveries, whatever class they are of."""
        rows = self._all("prunable_deliveries", account=ids.raw(account), after=after, before=before, limit=limit)
        return [(raw_id, keep_days, status) for raw_id, keep_days, status in rows]

    def drop_deliveries(self, account: str, raw_ids: Iterable[bytes]) -> None:
        keys: list[tuple[Any, ...]] = [(ids.raw(account), raw_id) for raw_id in raw_ids]
        self._connection.write_given("delete_attempts", keys)
        self._connection.write_given("delete_deliveries", keys)

    def pruned_up_to(self, account: str, keep_days: int) -> bytes:
        found = self._one("deliveries_pruned_up_to", account=ids.raw(account), keep_days=keep_days)
        return found[0] if found else b"\0" * 16

    def put_pruned_up_to(self, account: str, keep_days: int, raw_id: bytes) -> None:
        self._write("put_deliveries_pruned_up_to", account=ids.raw(account), keep_days=keep_days, id=raw_id)

    # --- checking

    def matched(self, account: str, after: bytes, limit: int) -> list[tuple[bytes, str, int, int]]:
        """Id, type, days kept of the oldest entries, and how many deliveries each says that it made."""
        rows = self._all("entries_matched", account=ids.raw(account), after=after, limit=limit)
        return [(raw_id, type_, keep_days, matched) for raw_id, type_, keep_days, matched in rows]

    def count_deliveries(self, account: str, events: Iterable[bytes]) -> dict[bytes, int]:
        """How many deliveries were made with each event: not by a replay, not by a retry."""
        return dict(self._of_account("count_deliveries_given", account, events))

    def delivered_to(self, account: str, events: Iterable[bytes]) -> set[tuple[bytes, bytes]]:
        """Event and subscription of the deliveries that were made with these events."""
        return {(event, each) for event, each in self._of_account("delivered_given", account, events)}

    def unfinished_of(self, account: str, events: Iterable[bytes]) -> set[bytes]:
        """Those of the events that have a delivery that is not ended."""
        return {event for (event,) in self._of_account("unfinished_given", account, events)}

    def entry_keeps(self, account: str, entries: Iterable[bytes]) -> dict[bytes, int]:
        """For how many days each is kept, of the entries that are still there."""
        return dict(self._of_account("entry_keeps_given", account, entries))

    def _of_account(self, statement: str, account: str, raw_ids: Iterable[bytes]) -> list[tuple[Any, ...]]:
        whose = ids.raw(account)
        return self._connection.rows_given(statement, [(whose, raw_id) for raw_id in raw_ids])


def _health(failures: int, failing_since: int | None, not_before: int) -> Health:
    return Health(
        failures,
        clock.from_milliseconds(failing_since) if failing_since is not None else None,
        clock.from_milliseconds(not_before) if not_before else None,
    )


def _running(row: tuple[Any, ...]) -> Running:
    account, raw_id, subscription, state, position, examined, made, document = row
    return Running(
        ids.text("acc", account), ids.text("rpl", raw_id), ids.text("sub", subscription), state, position,
        examined, made, _replay.decode(document),
    )  # fmt: skip
