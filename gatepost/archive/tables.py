"""The tables of an archive, and how rows of the store become rows of it. Ids are text, as everywhere else in output.

The members of an attempt's document are columns, because columns compress well.
"""

from typing import Any

import msgspec

from gatepost.archive.parquet import Column, Row, Table
from gatepost.core import ids
from gatepost.ledger.entries import Entry
from gatepost.ledger.seal import Seal
from gatepost.webhooks.deliveries import Attempt, AttemptDocument, Delivery

ENTRIES = Table("entries", (
    Column("account", "text", "dictionary"),
    Column("seal", "integer", "delta"),
    Column("id", "text", "delta"),
    Column("type", "text", "dictionary"),
    Column("at", "time", "delta"),
    Column("actor", "text", "dictionary"),
    Column("subject", "text", "dictionary"),
    Column("data", "text", "plain", optional=True),
    Column("data_hash", "bytes", "plain", optional=True),  # only where the data was erased
    Column("matched", "integer", "dictionary"),
    Column("keep_days", "integer", "dictionary"),
    Column("request", "text", "delta"),
    Column("source", "text", "dictionary"),
))  # fmt: skip

SEALS = Table("seals", (
    Column("account", "text", "dictionary"),
    Column("number", "integer", "delta"),
    Column("at", "time", "delta"),
    Column("leaves", "bytes", "plain"),
    Column("mac", "bytes", "plain"),
))  # fmt: skip

DELIVERIES = Table("deliveries", (
    Column("account", "text", "dictionary"),
    Column("id", "text", "delta"),
    Column("endpoint", "text", "dictionary"),
    Column("subscription", "text", "dictionary"),
    Column("event", "text", "delta"),
    Column("event_type", "text", "dictionary"),
    Column("origin", "text", "dictionary"),
    Column("status", "text", "dictionary"),
    Column("ended_at", "time", "delta", optional=True),
    Column("ended_reason", "text", "dictionary", optional=True),
    Column("last_code", "integer", "dictionary", optional=True),
    Column("last_failure", "text", "dictionary", optional=True),
    Column("keep_days", "integer", "dictionary"),
))  # fmt: skip

ATTEMPTS = Table("attempts", (
    Column("account", "text", "dictionary"),
    Column("delivery", "text", "delta"),
    Column("number", "integer", "dictionary"),
    Column("outcome", "text", "dictionary"),
    Column("planned_at", "time", "delta", optional=True),
    Column("started_at", "time", "delta", optional=True),
    Column("ended_at", "time", "delta", optional=True),
    Column("url", "text", "dictionary", optional=True),
    Column("signed_with", "texts", "dictionary", optional=True),
    Column("waited_for", "text", "dictionary", optional=True),
    Column("waited_ms", "integer", "dictionary", optional=True),
    Column("worker", "text", "dictionary", optional=True),
    Column("duration_ms", "number", "dictionary", optional=True),
    Column("response_code", "integer", "dictionary", optional=True),
    Column("failure", "text", "dictionary", optional=True),
    Column("detail", "text", "dictionary", optional=True),
    Column("retry_after", "text", "dictionary", optional=True),
    Column("dns_ms", "number", "dictionary", optional=True),
    Column("connect_ms", "number", "dictionary", optional=True),
    Column("tls_ms", "number", "dictionary", optional=True),
    Column("first_byte_ms", "number", "dictionary", optional=True),
    Column("remote_ip", "text", "dictionary", optional=True),
    Column("response", "text", "dictionary", optional=True),
    Column("because", "text", "dictionary", optional=True),
    Column("document", "text", "plain", optional=True),  # only where the columns do not have all of it
))  # fmt: skip

TABLES = (ENTRIES, SEALS, DELIVERIES, ATTEMPTS)

_MEMBERS = len(ATTEMPTS.columns) - 5  # columns that are members of an attempt's document
_TIMINGS = ("dns_ms", "connect_ms", "tls_ms", "first_byte_ms")
_decode = msgspec.json.Decoder(AttemptDocument).decode
_encode = msgspec.json.Encoder().encode


def entry_row(number: int, entry: Entry) -> Row:
    """The row of an entry, with the number of its seal."""
    return (entry.account, number, entry.name, *entry[2:])


def entry_of(row: Row) -> Entry:
    """The entry in a row. Raises `ValueError` if its id is malformed."""
    account, _, name, *rest = row
    return Entry(account, _raw("evt", name), *rest)


def seal_row(account: str, seal: Seal) -> Row:
    """The row of a seal."""
    return (account, *seal)


def seal_of(row: Row) -> Seal:
    """The seal in a row."""
    return Seal(*row[1:])


def delivery_row(delivery: Delivery) -> Row:
    """The row of a delivery."""
    return (*map(ids.text, ("acc", "dlv", "ep", "sub", "evt"), delivery[:5]), *delivery[5:])


def attempt_row(attempt: Attempt) -> Row:
    """The row of an attempt. It has the whole document as well if another release wrote other members."""
    key = (ids.text("acc", attempt.account), ids.text("dlv", attempt.delivery), attempt.number, attempt.outcome)
    try:
        row = (*key, *_columns(_decode(attempt.document)), None)
    except msgspec.DecodeError:
        return (*key, *[None] * _MEMBERS, attempt.document)
    return row if document_of(row) == attempt.document else (*row[:-1], attempt.document)


def _columns(document: AttemptDocument) -> list[Any]:
    timings = [document.timings.get(name) for name in _TIMINGS]
    return [
        document.planned_at, document.started_at, document.ended_at, document.url, document.signed_with,
        document.waited_for, document.waited_ms, document.worker, document.duration_ms, document.response_code,
        document.failure, document.detail, document.retry_after, *timings, document.remote_ip, document.response,
        document.because,
    ]  # fmt: skip


def document_of(row: Row) -> str:
    """Rebuild the JSON document of an attempt from its row."""
    *columns, whole = row[4:]
    if whole is not None:
        return str(whole)
    timings = {name: value for name, value in zip(_TIMINGS, columns[13:17], strict=True) if value is not None}
    members: list[Any] = [*columns[:13], timings, *columns[17:]]
    return _encode(AttemptDocument(*members)).decode()


def _raw(prefix: str, name: str) -> bytes:
    raw = ids.parse(prefix, name)
    if raw is None:
        raise ValueError(f"{name} is not an id that begins with {prefix}_")
    return raw
