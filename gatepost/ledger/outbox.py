"""The outbox: rows that applications insert in their own PostgreSQL transactions, and the privileges for that.

The worker moves the rows into the ledger. `publish` is `gatepost_client.publish`, which performs the insert.
"""

from collections.abc import Collection, Iterable

from gatepost.core.errors import BadSetting
from gatepost_client.outbox import publish

__all__ = ["check_role", "grant_statements", "publish", "revoke_statements"]


def check_role(role: str, own_roles: Collection[str]) -> None:
    """Raise if the role is one with which Gatepost publishes the rows: the statements begin with a REVOKE.

    The statements quote the role, so that it is only the role with exactly this name.
    """
    if role in own_roles:
        raise BadSetting(
            f"{role} is the role that owns the outbox, or that this command connects as. Without its privileges, "
            "Gatepost could not publish the rows of any account. Name the role of your application"
        )


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
