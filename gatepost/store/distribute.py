"""Distributing a store with Citus: what has to be done, and doing it in one transaction.

The service must be stopped. Afterwards it recognizes the distributed store by itself.
"""

from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from gatepost.core.errors import BadSetting, Refused
from gatepost.store.nodes import SILENT_AFTER
from gatepost.store.shards import BY_ACCOUNT, TWO_PHASE_TABLE

Database = psycopg.Connection[tuple[Any, ...]]

_CITUS = "SELECT extversion FROM pg_extension WHERE extname = 'citus'"
_NODES = """
SELECT nodename || ':' || nodeport, groupid = 0, shouldhaveshards FROM pg_dist_node
  WHERE isactive AND noderole = 'primary' ORDER BY groupid
"""
_TABLES = """
SELECT c.relname, c.relkind = 'p', c.oid IN (SELECT logicalrelid FROM pg_dist_partition) FROM pg_class c
  WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
    AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('migrations'))
"""
_FOREIGN_KEYS = """
SELECT conrelid::regclass::text, confrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
  WHERE contype = 'f' AND connamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('migrations'))
  ORDER BY conname
"""
_RUNNING = """
SELECT host FROM nodes WHERE beat_at > extract(epoch FROM clock_timestamp()) * 1000 - %s ORDER BY host LIMIT 1
"""
_CONSTRAINTS = """
SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %s::regclass AND contype IN ('p', 'u')
"""
_INDEXES = """
SELECT pg_get_indexdef(indexrelid) FROM pg_index
  WHERE indrelid = %s::regclass AND indexrelid NOT IN (SELECT conindid FROM pg_constraint WHERE conrelid = %s::regclass)
"""
_FILLFACTOR = """
SELECT split_part(option, '=', 2) FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid, unnest(c.reloptions) option
  WHERE inhparent = %s::regclass AND option LIKE 'fillfactor=%%' LIMIT 1
"""


class ForeignKey(NamedTuple):
    """A foreign key: its table, the table that it refers to, its name and its definition."""

    table: str
    target: str
    name: str
    definition: str

    @property
    def is_kept(self) -> bool:
        """Whether Citus can enforce it: both tables are distributed by the account."""
        return self.table in BY_ACCOUNT and self.target in BY_ACCOUNT


class Plan(NamedTuple):
    """What `apply` will do. Nothing is left to do if there are no tables."""

    citus: str
    nodes: list[str]  # that get shards
    tables: list[str]  # to distribute
    partitioned: list[str]  # of these, those to turn into plain tables first
    foreign_keys: list[ForeignKey]  # to drop, and to add again if they are kept
    local: list[str]  # that stay on the coordinator


def plan(database: Database) -> Plan:
    """What is left to do. Raises `BadSetting` if the store cannot be distributed."""
    versions = database.execute(_CITUS).fetchall()
    if not versions:
        raise BadSetting("the database does not have the extension citus; run CREATE EXTENSION citus on every node")
    nodes = database.execute(_NODES).fetchall()
    if not any(coordinator for _, coordinator, _ in nodes):
        raise BadSetting("Citus does not know the coordinator; run SELECT citus_set_coordinator_host('NAME', PORT)")
    with_shards = [name for name, _, has_shards in nodes if has_shards]
    if not with_shards:
        raise BadSetting("Citus has no nodes for shards; run SELECT citus_add_node('NAME', PORT) for each of them")
    running = database.execute(_RUNNING, [SILENT_AFTER]).fetchall()
    if running:
        raise Refused(f"a gatepost runs on {running[0][0]}; stop every `gatepost serve` first")
    tables = {name: (partitioned, distributed) for name, partitioned, distributed in database.execute(_TABLES)}
    wanted = [name for name in BY_ACCOUNT if not tables[name][1]]
    foreign_keys = [ForeignKey(*row) for row in database.execute(_FOREIGN_KEYS)]
    return Plan(
        versions[0][0], with_shards, wanted, [name for name in wanted if tables[name][0]],
        [key for key in foreign_keys if {key.table, key.target} & set(wanted)],
        sorted(set(tables) - set(BY_ACCOUNT) - {TWO_PHASE_TABLE}),
    )  # fmt: skip


def apply(database: Database, plan: Plan) -> None:
    """Distribute the tables with their rows. If anything fails, nothing is changed."""
    if not plan.tables:
        return
    with database.transaction():
        # One connection to each node, so that shards of one transaction can refer to each other.
        database.execute("SET LOCAL citus.multi_shard_modify_mode TO 'sequential'")
        for key in plan.foreign_keys:
            _run(database, "ALTER TABLE {} DROP CONSTRAINT {}", key.table, key.name)
        for table in plan.partitioned:
            _make_plain(database, table)
        first = BY_ACCOUNT[0]
        for table in plan.tables:
            colocated = "none" if table == first else first
            database.execute(
                "SELECT create_distributed_table(%s, 'account', colocate_with => %s)", (table, colocated)
            )  # fmt: skip
            database.execute("SELECT truncate_local_data_after_distributing_table(%s)", (table,))
        for key in plan.foreign_keys:
            if key.is_kept:
                added = sql.SQL("ALTER TABLE {} ADD CONSTRAINT {} ").format(*map(sql.Identifier, (key.table, key.name)))
                database.execute(added + sql.SQL(key.definition))
        # Citus sets this on every node. The coordinator's own connections set it in the session.
        _run(database, "ALTER ROLE CURRENT_USER IN DATABASE {} SET enable_bitmapscan = off", database.info.dbname)
        if database.execute("SELECT to_regclass(%s)", (TWO_PHASE_TABLE,)).fetchall() == [(None,)]:
            _run(database, "CREATE TABLE {} (number integer PRIMARY KEY)", TWO_PHASE_TABLE)
            database.execute("SELECT citus_add_local_table_to_metadata(%s)", (TWO_PHASE_TABLE,))


def _make_plain(database: Database, table: str) -> None:
    """Replace a partitioned table by one without partitions. Citus distributes every partition as a table."""
    constraints = database.execute(_CONSTRAINTS, [table]).fetchall()
    indexes = database.execute(_INDEXES, [table, table]).fetchall()
    fillfactor = database.execute(_FILLFACTOR, [table]).fetchall()
    plain, view = f"{table}_plain", f"{table}_pruned_by_row"
    if not constraints:  # each partition has its own
        constraints = [(f"{table}_pkey", "PRIMARY KEY (account, id)")]
    has_view = database.execute("SELECT to_regclass(%s)", (view,)).fetchall() != [(None,)]
    if has_view:
        _run(database, "DROP VIEW {}", view)
    _run(database, "CREATE TABLE {} (LIKE {} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)", plain, table)
    if fillfactor:
        _run(database, f"ALTER TABLE {{}} SET (fillfactor = {int(fillfactor[0][0])})", plain)
    _run(database, "INSERT INTO {} SELECT * FROM {}", plain, table)
    _run(database, "DROP TABLE {}", table)
    _run(database, "ALTER TABLE {} RENAME TO {}", plain, table)
    for name, definition in constraints:
        _run(database, f"ALTER TABLE {{}} ADD CONSTRAINT {{}} {definition}", table, name)
    for (definition,) in indexes:
        database.execute(definition.replace(" ON ONLY ", " ON ", 1).encode())
    if has_view:
        _run(database, "CREATE VIEW {} AS SELECT * FROM {}", view, table)


def _run(database: Database, text: str, *names: str) -> None:
    database.execute(sql.SQL(text).format(*map(sql.Identifier, names)))
