"""Keeps tables fast on PostgreSQL whose rows live for seconds: removes dead rows, and corrects estimates of size.

As long as a transaction is open, such as a long query of someone else, VACUUM keeps all rows that it could see. The
queue is then full of deliveries that have ended, and reading past them takes longer and longer. Here the table is
emptied by TRUNCATE, and the rows that live are inserted again.

A transaction that has read the table holds a lock that prevents this. One that has not, and that is older than the
truncation, finds the table empty. Gatepost's own readers notice it and read again (`PostgresConnection.transaction`).
While `pg_dump` is connected, nothing is truncated.

If VACUUM or ANALYZE finds a table almost empty, PostgreSQL expects it to stay so until the next time, and reads all of
it instead of looking up rows by their keys. It is then analyzed again with rows that are never committed: ANALYZE
records the number of rows at once, whatever becomes of its transaction.
"""

from collections.abc import Callable

import psycopg

from gatepost.store.partitions import Database, begin, run

TABLES = ("queue", "tallies", "unsealed", "endpoint_tally_log")
LEAST = 100_000  # dead rows that are worth a truncation
MAX_KEPT = 20_000  # rows that are inserted again while others wait
FEW = 1000  # a table that was found to have at most this many rows is analyzed again
# Rows that belong to no account. They are rolled back, but ANALYZE counts them.
_EXAMPLES = {
    "queue": """
INSERT INTO queue (account, id, endpoint, event, lane, due, planned_at, because, number, used, interrupted)
  SELECT '', int4send(n), '', '', 0, 0, 0, 'event', 0, 0, 0 FROM generate_series(1, 2000) n""",
    "unsealed": "INSERT INTO unsealed (account, id) SELECT '', int4send(n) FROM generate_series(1, 2000) n",
}
_COUNT = """
SELECT n_dead_tup, n_live_tup, relpages > 0 AND reltuples BETWEEN 0 AND {few}
  FROM pg_stat_user_tables JOIN pg_class ON oid = relid WHERE relid = '{table}'::regclass
"""
_MAY_TRUNCATE = """
SELECT has_database_privilege(current_database(), 'TEMPORARY') AND has_table_privilege('{table}', 'TRUNCATE')
"""
_DUMPS = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'pg_dump'"
_IN_USE = (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled, psycopg.errors.DeadlockDetected)


class _Skipped(Exception):
    """The table is left as it is."""


def remove(database: Database) -> list[str]:
    """Remove the dead rows of tables that have few others. Returns these tables.

    A table that is in use has to wait.
    """
    removed = []
    for table in TABLES:
        [(dead, live, found_empty)] = run(database, _COUNT.format(table=table, few=FEW))
        if dead >= LEAST and live <= MAX_KEPT:
            if _take_turn(database, table, _truncate):
                removed.append(table)
        elif found_empty and table in _EXAMPLES:
            _take_turn(database, table, _analyze)
    return removed


def _take_turn(database: Database, table: str, work: Callable[[Database, str], None]) -> bool:
    """Do this work in a transaction, unless others use the table or another process maintains it."""
    try:
        with database.transaction():
            if not begin(database):
                return False
            work(database, table)
    except (*_IN_USE, _Skipped):
        return False
    return True


def _truncate(database: Database, table: str) -> None:
    if run(database, _MAY_TRUNCATE.format(table=table)) != [(True,)]:
        raise _Skipped
    run(database, f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
    run(database, f"CREATE TEMPORARY TABLE living ON COMMIT DROP AS SELECT * FROM {table} LIMIT {MAX_KEPT + 1}")
    if run(database, "SELECT count(*) FROM living") == [(MAX_KEPT + 1,)]:
        raise _Skipped
    run(database, f"TRUNCATE {table}")
    run(database, f"INSERT INTO {table} SELECT * FROM living")
    if run(database, _DUMPS):  # last, because one could have begun meanwhile
        raise _Skipped


def _analyze(database: Database, table: str) -> None:
    run(database, _EXAMPLES[table])
    run(database, f"ANALYZE {table}")
    raise psycopg.Rollback
