"""`gatepost.publish`: publish an event in the caller's own PostgreSQL transaction, with any driver.

It is one INSERT into `gatepost_outbox`. The worker moves the row into the ledger after the caller's commit. A role only
needs the INSERT privilege on that table, which can be restricted to certain accounts.
"""

import inspect
import json
from collections.abc import Iterable
from contextlib import closing
from typing import Any

from gatepost.core.errors import BadSetting
from gatepost.core.strict_json import Json, read_json
from gatepost.ledger.publishable import Event, event

_INSERT = "INSERT INTO gatepost_outbox (account, type, data, id) VALUES (%s, %s, CAST(%s AS json), %s)"


def publish(connection: Any, *, account: str, type: str, data: Any, id: str | None = None) -> None:  # noqa: A002 (the words of an event)
    """Add an event to the outbox, through a connection or cursor that writes parameters as %s.

    `account` is a name or an id. An `id` that is used again with the same type and data is the same event. Raises
    ValueError, before anything is sent, if the event cannot be published.
    """
    row = (account, type, _text(account, type, data, id), id)
    if not hasattr(connection, "execute"):  # PEP 249 gives it to cursors only
        with closing(connection.cursor()) as cursor:
            cursor.execute(_INSERT, row)
        return
    result = connection.execute(_INSERT, row)
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError("this connection is asynchronous: use a synchronous one, or execute and await the INSERT")


def _text(account: str, type_: str, data: Any, given_id: str | None) -> str:
    """The data as JSON. Raises ValueError if the event cannot be published."""
    if not isinstance(account, str) or not account.isprintable() or not account:
        raise ValueError("account: must be the name or the id of an account")
    try:
        written = json.dumps(data, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"data: must be representable as JSON ({error})") from None
    parsed = read_json(written)
    if not isinstance(parsed, Json):
        raise ValueError(f"data: {parsed.detail}")  # noqa: TRY004 (the value is at fault)
    checked = event(type_, parsed.value, given_id)
    if not isinstance(checked, Event):
        raise ValueError(checked.detail)  # noqa: TRY004 (the same)
    return checked.data


def grant_statements(role: str, accounts: Iterable[str]) -> list[str]:
    """SQL that permits a role to insert events for these accounts, and nothing else.

    Only the four columns of an event are granted: a role that can choose `seq` could learn from conflicts which rows
    exist. The policy is restrictive, so it holds even if the role gets further privileges on the table.
    """
    name = _identifier(role)
    rows = f"account IN ({', '.join(_literal(account) for account in accounts)})"
    return [
        *revoke_statements(role),
        f"GRANT INSERT (account, type, data, id) ON gatepost_outbox TO {name}",
        f"CREATE POLICY {name} ON gatepost_outbox AS RESTRICTIVE TO {name} USING ({rows}) WITH CHECK ({rows})",
    ]


def revoke_statements(role: str) -> list[str]:
    """SQL that removes every privilege of a role on the outbox."""
    name = _identifier(role)
    return [f"REVOKE ALL ON gatepost_outbox FROM {name}", f"DROP POLICY IF EXISTS {name} ON gatepost_outbox"]


def _identifier(role: str) -> str:
    if not role or "\0" in role or len(role.encode()) > 63 or role.lower() in ("public", "gatepost_any_account"):
        raise BadSetting(f"{role!r} is not the name of a role: name one that exists, of at most 63 bytes")
    return '"' + role.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
