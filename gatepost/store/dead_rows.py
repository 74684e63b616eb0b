"""Removes dead rows on PostgreSQL that VACUUM has to leave: of tables whose rows live for seconds.

As long as a transaction is open, such as a long query of someone else, VACUUM keeps all rows that it could see. The
queue is then full of deliveries that have ended, and reading past them takes longer and longer. Here the table is
emptied by TRUNCATE, and the rows that live are inserted again.

That is also done if VACUUM or ANALYZE found the table almost empty. Until the next time, PostgreSQL would expect it to
be so, and read all of it instead of looking up rows by their keys. After TRUNCATE it goes by the size of the table.

A transaction that has read the table holds a lock that prevents this, as a dump does. One that has not, and that is
older than the truncation, finds the table empty. Gatepost's own transactions read what is committed, not a snapshot.
"""

import psycopg

from gatepost.store.partitions import Database, begin, run

TABLES = ("queue", "tallies", "unsealed", "endpoint_tally_log")
LEAST = 100_000  # dead rows that are worth it
MAX_KEPT = 20_000  # rows that are inserted again while others wait
_COUNT = """
SELECT n_dead_tup, n_live_tup, relpages > 0 AND reltuples BETWEEN 0 AND 1000
  FROM pg_stat_user_tables JOIN pg_class ON oid = relid WHERE relid = '{table}'::regclass
"""


def remove(database: Database) -> list[str]:
    """Remove the dead rows of tables that have few others. Returns these tables.

    A table that is in use has to wait.
    """
    return [table for table in TABLES if _remove_from(database, table)]


def _remove_from(database: Database, table: str) -> bool:
    [(dead, live, found_empty)] = run(database, _COUNT.format(table=table))
    if live > MAX_KEPT or (dead < LEAST and not found_empty):
        return False
    try:
        with database.transaction():
            if not begin(database):
                return False
            run(database, f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            run(database, f"CREATE TEMPORARY TABLE living ON COMMIT DROP AS SELECT * FROM {table} LIMIT {MAX_KEPT + 1}")
            if run(database, "SELECT count(*) FROM living") == [(MAX_KEPT + 1,)]:
                return False
            run(database, f"TRUNCATE {table}")
            run(database, f"INSERT INTO {table} SELECT * FROM living")
    except (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled):
        return False
    return True
