"""Replays: new deliveries of retained events. A worker creates them in slices, without a limit."""

from datetime import timedelta
from typing import Any

import msgspec

from gatepost.accounts import Account, account_rows
from gatepost.core import clock, ids
from gatepost.ledger import entry_rows
from gatepost.ledger.entries import SERVICE, Entry, Origin
from gatepost.ledger.record import record
from gatepost.ledger.search import CLOCK_TOLERANCE
from gatepost.store.transaction import LOWEST, Tx
from gatepost.webhooks import delivery_rows, endpoint_rows, replay_rows, subscription_rows, tallies
from gatepost.webhooks.fanout import Subscribers, fan_out, subscriber
from gatepost.webhooks.replay_rows import Running
from gatepost.webhooks.subscriptions import Replay, Subscription, matches_type

SLICE = 200
_SLACK = CLOCK_TOLERANCE // timedelta(milliseconds=1)  # entries are found by the time in their ids


def start(tx: Tx, account: Account, subscription: Subscription, asked: Replay, origin: Origin) -> Entry:
    """Create the job that a worker runs. It ends at the present: later events are delivered anyway."""
    replay = ids.new("rpl")
    until = min(asked.until, tx.at) if asked.until else tx.at
    asked = msgspec.structs.replace(asked, until=until)
    position = ids.lowest_at(clock.milliseconds(asked.start) - _SLACK) if asked.start else LOWEST
    replay_rows.add(tx, account.id, replay, subscription.id, asked, position)
    data = {"subscription": subscription.id, "endpoint": subscription.endpoint, "asked": _asked(asked)}
    return record(tx, account, "webhook.replay.started", origin, replay, data)


def some(tx: Tx, account_name: str, replay: str) -> bool:
    """Do one slice. True when there may be more to do."""
    running = replay_rows.lock(tx, account_name, replay)
    account = account_rows.load(tx, account_name)
    if running is None or account is None:
        return False
    subscription = subscription_rows.load(tx, account.id, running.subscription)
    endpoint = endpoint_rows.load_uncached(tx, account.id, subscription.endpoint) if subscription else None
    if subscription is None or subscription.status == "removed" or endpoint is None or endpoint.status == "removed":
        _end(tx, account, running, subscription)
        return False
    page = _page(tx, account, running)
    within = [entry for entry in page if _is_within(running.asked, entry)]
    made = _deliver(tx, account, subscription, running.asked, within)
    position = page[-1].id if page else running.position
    running = running._replace(position=position, examined=running.examined + len(within), made=running.made + made)
    if len(page) < SLICE:
        _end(tx, account, running, subscription)
        return False
    replay_rows.update(tx, running)
    return True


def _page(tx: Tx, account: Account, running: Running) -> list[Entry]:
    asked = running.asked
    if asked.event_ids:
        wanted = [(ids.raw(account.id), ids.raw(each)) for each in asked.event_ids]
        return sorted(entry_rows.load_many(tx, wanted).values(), key=lambda entry: entry.id)
    until = asked.until or tx.at
    before = ids.lowest_at(clock.milliseconds(until) + 1 + _SLACK)
    return entry_rows.oldest(tx, account.id, running.position, before, SLICE)


def _is_within(asked: Replay, entry: Entry) -> bool:
    """From the start to the end, both included, by the time of the entry."""
    if asked.event_ids:
        return True
    start = clock.milliseconds(asked.start) if asked.start else 0
    return start <= entry.at and (asked.until is None or entry.at <= clock.milliseconds(asked.until))


def _deliver(tx: Tx, account: Account, subscription: Subscription, asked: Replay, page: list[Entry]) -> int:
    to = Subscribers((subscriber(subscription),), account.seconds("retention") // 86400)
    made = 0
    for entry in page:
        if not matches_type(subscription.events, entry.type):
            continue
        if asked.only_failed and not delivery_rows.has_failed(tx, account.id, entry.id, subscription.id):
            continue
        made += len(delivery_rows.create(tx, fan_out(entry, to, ids.fresh, "replay")))
    tallies.add(tx, account.id, "made", made)
    return made


def _end(tx: Tx, account: Account, running: Running, subscription: Subscription | None) -> None:
    replay_rows.update(tx, running._replace(state="ended"))
    data = {
        "subscription": running.subscription,
        "endpoint": subscription.endpoint if subscription else None,
        "examined": running.examined,
        "made": running.made,
    }
    record(tx, account, "webhook.replay.ended", Origin(SERVICE), running.id, data)


def render(running: Running) -> dict[str, Any]:
    return {
        "id": running.id,
        "state": running.state,
        "examined": running.examined,
        "made": running.made,
        **_asked(running.asked),
    }


def _asked(asked: Replay) -> dict[str, Any]:
    rendered: dict[str, Any] = {}
    if asked.start:
        rendered["from"] = clock.rfc3339(asked.start)
    if asked.until:
        rendered["until"] = clock.rfc3339(asked.until)
    if asked.only_failed:
        rendered["only"] = "failed"
    if asked.event_ids:
        rendered["event_ids"] = asked.event_ids
    return rendered
