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
from gatepost.webhooks.replay_rows import ReplayJob
from gatepost.webhooks.subscriptions import Replay, Subscription, matches_type

SLICE = 200
_TOLERANCE = CLOCK_TOLERANCE // timedelta(milliseconds=1)  # entries are found by the time in their ids


def start(tx: Tx, account: Account, subscription: Subscription, request: Replay, origin: Origin) -> Entry:
    """Create the job that a worker runs. It ends at the present: later events are delivered anyway."""
    replay = ids.new("rpl")
    request = msgspec.structs.replace(request, until=min(request.until or tx.at, tx.at))
    position = ids.lowest_at(clock.milliseconds(request.start) - _TOLERANCE) if request.start else LOWEST
    replay_rows.add(tx, account.id, replay, subscription.id, request, position)
    data = {"subscription": subscription.id, "endpoint": subscription.endpoint, "asked": _render_request(request)}
    return record(tx, account, "webhook.replay.started", origin, replay, data)


def run_slice(tx: Tx, account_id: str, replay: str) -> bool:
    """Run one slice of a replay. Returns whether there may be more to do."""
    job = replay_rows.lock(tx, account_id, replay)
    account = account_rows.load(tx, account_id)
    if job is None or account is None:
        return False
    subscription = subscription_rows.load(tx, account.id, job.subscription)
    endpoint = endpoint_rows.load_uncached(tx, account.id, subscription.endpoint) if subscription else None
    if subscription is None or subscription.status == "removed" or endpoint is None or endpoint.status == "removed":
        _end(tx, account, job, subscription)
        return False
    page = _page(tx, account, job)
    entries = [entry for entry in page if _is_requested(job.request, entry)]
    job = job._replace(
        position=page[-1].id if page else job.position,
        examined=job.examined + len(entries),
        made=job.made + _create_deliveries(tx, account, subscription, job.request, entries),
    )
    if len(page) < SLICE:
        _end(tx, account, job, subscription)
        return False
    replay_rows.update(tx, job)
    return True


def _page(tx: Tx, account: Account, job: ReplayJob) -> list[Entry]:
    if job.request.event_ids:
        keys = [(ids.raw(account.id), ids.raw(event)) for event in job.request.event_ids]
        return sorted(entry_rows.load_many(tx, keys).values(), key=lambda entry: entry.id)
    before = ids.lowest_at(clock.milliseconds(job.request.until or tx.at) + 1 + _TOLERANCE)
    return entry_rows.oldest(tx, account.id, job.position, before, SLICE)


def _is_requested(request: Replay, entry: Entry) -> bool:
    """Whether the entry was recorded from the start to the end of the range, both included."""
    if request.event_ids:
        return True
    start = clock.milliseconds(request.start) if request.start else 0
    return start <= entry.at and (request.until is None or entry.at <= clock.milliseconds(request.until))


def _create_deliveries(
    tx: Tx, account: Account, subscription: Subscription, request: Replay, entries: list[Entry]
) -> int:
    """Create a delivery of each entry that matches, unless the entry has been deleted since it was read."""
    to = Subscribers((subscriber(subscription),), account.seconds("retention") // 86400)
    matching = [entry for entry in entries if matches_type(subscription.events, entry.type)]
    retained = entry_rows.lock(tx, account.id, (entry.id for entry in matching))
    count = 0
    for entry in matching:
        if entry.id not in retained:
            continue
        if request.only_failed and not delivery_rows.has_failed(tx, account.id, entry.id, subscription.id):
            continue
        count += len(delivery_rows.create(tx, fan_out(entry, to, ids.new_raw, "replay")))
    tallies.add(tx, (ids.raw(account.id), ids.raw(subscription.endpoint)), "made", count=count)
    return count


def _end(tx: Tx, account: Account, job: ReplayJob, subscription: Subscription | None) -> None:
    replay_rows.update(tx, job._replace(state="ended"))
    data = {
        "subscription": job.subscription,
        "endpoint": subscription.endpoint if subscription else None,
        "examined": job.examined,
        "made": job.made,
    }
    record(tx, account, "webhook.replay.ended", Origin(SERVICE), job.id, data)


def render(job: ReplayJob) -> dict[str, Any]:
    """The progress of a replay, as the API returns it."""
    progress = {"id": job.id, "state": job.state, "examined": job.examined, "made": job.made}
    return progress | _render_request(job.request)


def _render_request(request: Replay) -> dict[str, Any]:
    members = {
        "from": clock.rfc3339(request.start) if request.start else None,
        "until": clock.rfc3339(request.until) if request.until else None,
        "only": "failed" if request.only_failed else None,
        "event_ids": request.event_ids,
    }
    return {name: value for name, value in members.items() if value}
