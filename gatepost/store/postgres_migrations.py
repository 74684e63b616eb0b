"""Applying migrations on PostgreSQL beside a running service. One process at a time applies them."""

from functools import partial
from typing import Any

import psycopg
from psycopg import sql

from gatepost.store import lock_retries, partitions, search_path, sql_loader
from gatepost.store.sql_loader import Migration

Database = psycopg.Connection[tuple[Any, ...]]

LOCK = 0x67617465  # "gate"
_MIGRATIONS = "CREATE TABLE migrations (number integer PRIMARY KEY, name text, checksum text, at bigint)"


def migrate(database: Database, now: int) -> list[str]:
    """Apply the missing migrations, and return their names.

    Raises `Unavailable` if a table stays locked, and `BadSetting` if the search path leads to the wrong schema.
    """
    names: list[str] = []
    while migration := lock_retries.retry(partial(_apply_next, database, now), "a migration"):
        names.append(migration.name)
    return names


def applied(database: Database) -> dict[int, str]:
    """The applied migrations: number → checksum. A process of a running service can use a store in any schema."""
    if search_path.is_migrated(database):
        return dict(database.execute("SELECT number, checksum FROM migrations").fetchall())
    search_path.check(database)
    return {}


def _apply_next(database: Database, now: int) -> Migration | None:
    """Apply a migration in a transaction of its own, if one is missing. A pooler would keep a session lock.

    The transaction also makes the first partitions, so that no process finds a complete schema without them.
    """
    with database.transaction():
        lock_retries.set_lock_timeout(database)
        try:
            database.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        except psycopg.errors.LockNotAvailable:
            raise lock_retries.Locked("another process applies migrations") from None
        search_path.check(database)
        if not search_path.is_migrated(database):  # otherwise the role may not be permitted to create tables
            database.execute(_MIGRATIONS)
        missing = sql_loader.missing("postgres", applied(database))
        if not missing:
            return None
        migration = missing[0]
        database.execute(sql.SQL(migration.text))
        database.execute(
            "INSERT INTO migrations VALUES (%s, %s, %s, %s)",
            (migration.number, migration.name, migration.checksum, now),
        )
        partitions.make(database, now)
    return migration
