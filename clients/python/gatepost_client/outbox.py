"""Publish an event in your own PostgreSQL transaction: one INSERT into the outbox of Gatepost.

If the transaction is committed, Gatepost publishes the event; if it is rolled back, there is no event. The role needs
only the INSERT privilege on `gatepost_outbox`, see `gatepost outbox grant`. Drivers are recognized, not imported.
"""

import inspect
from contextlib import closing
from typing import Any, NamedTuple

from gatepost_client.events import data_as_json

_COLUMNS = "INSERT INTO gatepost_outbox (account, type, data, id) VALUES"
# The inner casts tell every driver that the parameters are texts: some would write a text as a JSON string.
_PERCENT = f"{_COLUMNS} (%s, %s, CAST(CAST(%s AS text) AS json), %s)"
_DOLLAR = f"{_COLUMNS} ($1, $2, CAST($3::text AS json), $4)"
_COLON = f"{_COLUMNS} (:account, :type, CAST(CAST(:data AS text) AS json), :id)"


class _Row(NamedTuple):
    account: str
    type: str
    data: str
    id: str | None


def publish(connection: Any, *, account: str, type: str, data: Any, id: str | None = None) -> None:  # noqa: A002 (the words of an event)
    """Add an event to the outbox, in the transaction of the connection.

    `connection` is a connection, session or cursor of psycopg, of SQLAlchemy, or of any driver that writes parameters
    as %s. `account` is a name or an id. An `id` that is used again with the same type and data is the same event.
    Raises ValueError, before anything is sent, if the event cannot be published.
    """
    row = _row(account, type, data, id)
    if _is_of(connection, "asyncpg"):
        raise TypeError("this connection is asynchronous: await publish_async(connection, …)")
    if _is_of(connection, "sqlalchemy"):
        result = connection.execute(_sqlalchemy_text(), row._asdict())
    elif hasattr(connection, "execute"):
        result = connection.execute(_PERCENT, row)
    else:  # PEP 249 gives `execute` to cursors only
        with closing(connection.cursor()) as cursor:
            cursor.execute(_PERCENT, row)
        return
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError("this connection is asynchronous: await publish_async(connection, …)")


async def publish_async(connection: Any, *, account: str, type: str, data: Any, id: str | None = None) -> None:  # noqa: A002 (the words of an event)
    """The same, for an asynchronous connection, session or cursor of psycopg, asyncpg or SQLAlchemy."""
    row = _row(account, type, data, id)
    if _is_of(connection, "asyncpg"):
        result = connection.execute(_DOLLAR, *row)
    elif _is_of(connection, "sqlalchemy"):
        result = connection.execute(_sqlalchemy_text(), row._asdict())
    else:
        result = connection.execute(_PERCENT, row)
    if not inspect.isawaitable(result):
        raise TypeError("this connection is synchronous, and the event was added: call publish(connection, …)")
    await result


def _row(account: str, type_: str, data: Any, event_id: str | None) -> _Row:
    if not isinstance(account, str) or not account.isprintable() or not account:
        raise ValueError("account: must be the name or the id of an account")
    return _Row(account, type_, data_as_json(type_, data, event_id), event_id)


def _is_of(connection: object, package: str) -> bool:
    return any(base.__module__.partition(".")[0] == package for base in type(connection).__mro__)


def _sqlalchemy_text() -> Any:
    from sqlalchemy import text  # noqa: PLC0415 (the caller has it)

    return text(_COLON)
