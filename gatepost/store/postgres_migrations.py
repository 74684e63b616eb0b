"""Applying migrations on PostgreSQL beside a running service.

A migration waits for transactions that use its tables, and all others wait behind it. So it waits for a lock only
briefly, and is tried again. One process at a time applies migrations.
"""

from time import sleep
from typing import Any

import psycopg
from psycopg import sql

from gatepost.core.errors import Unavailable
from gatepost.store import partitions, sql_loader
from gatepost.store.sql_loader import Migration

Database = psycopg.Connection[tuple[Any, ...]]

_LOCK = 0x67617465  # "gate"
_LOCK_TIMEOUT = "1500ms"  # less than the time for which callers wait
_TRIES = 60
_PAUSE = 0.5  # seconds between two tries, in which others get their turn
_MIGRATIONS = "CREATE TABLE IF NOT EXISTS migrations (number integer PRIMARY KEY, name text, checksum text, at bigint)"


def migrate(database: Database, now: int) -> list[str]:
    """Apply the missing migrations, and return their names. Raises `Unavailable` if a table stays locked."""
    names: list[str] = []
    while migration := _apply_next(database, now):
        names.append(migration.name)
    return names


def applied(database: Database) -> dict[int, str]:
    """The applied migrations: number → checksum."""
    return dict(database.execute("SELECT number, checksum FROM migrations").fetchall())


def _apply_next(database: Database, now: int) -> Migration | None:
    reason = ""
    for _ in range(_TRIES):
        try:
            return _try_next(database, now)
        except psycopg.errors.LockNotAvailable as error:
            reason = " ".join(str(error).split())
        sleep(_PAUSE)
    raise Unavailable(
        f"a migration was tried {_TRIES} times, but other transactions use its tables ({reason}); "
        "end long transactions, which pg_stat_activity lists, and start again"
    )


def _try_next(database: Database, now: int) -> Migration | None:
    """Apply a migration in a transaction of its own, if one is missing. A pooler would keep a session lock.

    The transaction also makes the first partitions, so that no process finds a complete schema without them.
    """
    with database.transaction():
        database.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))  # nobody but migrations waits for it
        database.execute("SELECT set_config('lock_timeout', %s, true)", (_LOCK_TIMEOUT,))
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
