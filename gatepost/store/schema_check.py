"""Facts about a store: its engine, its clock, dangerous settings, and whether its schema fits this release."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, NamedTuple

from gatepost.store import sql_loader

Wakeups = Literal["listen", "poll", "pooled", "unreachable"]


class StoreInfo(NamedTuple):
    """What `gatepost doctor` reports about a store."""

    engine: str
    clock: datetime | None  # the clock of the database, if it has one
    dangers: tuple[str, ...]  # settings under which a commit could be lost
    read_only: str = ""  # why nothing can be written
    replication: str = ""  # why a failover could lose a commit
    pooled: bool = False  # a connection pooler is between
    not_distributed: tuple[str, ...] = ()  # tables that should be, if Citus distributes the store
    wakeups: Wakeups = "listen"  # how workers learn of new deliveries; the last two are faults of database_listen
    missing_privileges: tuple[tuple[str, str], ...] = ()  # what the role may not do, each with what to do about it
    search_path_problem: tuple[str, str] | None = None  # why no tables can be created, and what to do about it


class Maintenance(NamedTuple):
    """What was done about partitions: tables made and dropped, and those that had to wait, with the reason."""

    made: list[str]
    dropped: list[str]
    waiting: dict[str, str]


def schema_problem(dialect: sql_loader.Dialect, applied: Mapping[int, str]) -> str:
    """What is wrong with the schema, and what to do. Empty if nothing is."""
    known = {migration.number: migration.checksum for migration in sql_loader.migrations(dialect)}
    newest = max(known)
    if not applied:
        return "the store has no tables yet; start the service once (gatepost serve), or run: gatepost store migrate"
    if max(applied) > newest:
        return f"the store is at schema {max(applied)}, newer than this release knows ({newest}); install a newer one"
    if set(known) - set(applied):
        return f"the store is at schema {max(applied)}, this release needs {newest}; run: gatepost store migrate"
    changed = [number for number, checksum in known.items() if applied[number] != checksum]
    if changed:
        return f"migration {changed[0]} differs from the one that was applied; install the release that applied it"
    return ""
