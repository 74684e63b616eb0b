"""What the role of the service may not do in a PostgreSQL database, although it has to."""

import re
from functools import cache
from typing import Any

import psycopg

from gatepost.store import sql_loader

# The owner attaches and drops partitions, and applies migrations. No privilege can be granted for that. Tables of
# other programs in later schemas of the search path can have the same names.
_MISSING = """
SELECT current_user, current_schema(), has_schema_privilege(current_schema(), 'CREATE'),
  (SELECT pg_get_userbyid(relowner) FROM pg_class
    WHERE oid = to_regclass(quote_ident(current_schema()) || '.migrations')),
  count(*) FILTER (WHERE NOT pg_has_role(c.relowner, 'USAGE')),
  count(*) FILTER (WHERE NOT writable), min(quote_ident(pg_get_userbyid(c.relowner))) FILTER (WHERE NOT writable),
  string_agg(quote_ident(name), ', ' ORDER BY name) FILTER (WHERE NOT writable AND pg_has_role(c.relowner, 'USAGE'))
FROM unnest(%s::text[]) AS name
  JOIN pg_class c ON c.oid = to_regclass(quote_ident(current_schema()) || '.' || name), LATERAL (
  SELECT has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
    AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE') AS writable
) may
"""


def missing(database: psycopg.Connection[Any]) -> tuple[tuple[str, str], ...]:
    """What the role may not do, each with what to do about it. Empty if it can use no schema of the search path."""
    [row] = database.execute(_MISSING, (_tables(),)).fetchall()
    role, schema, may_create, owner, not_owned, not_writable, of_owner, revoked = row
    if schema is None:
        return ()
    found: list[tuple[str, str]] = []
    if not_writable:
        problem = f"the role {role} may not read and write {not_writable} of the tables"
        do = f"run: GRANT ALL ON {revoked} TO {of_owner}" if revoked else f"connect as {owner}, which owns the tables"
        found.append((problem, do))
    elif not_owned:
        problem = f"the role {role} does not own the tables, so it can neither create and drop partitions nor migrate"
        found.append((problem, f"connect as {owner}, which owns them, or run: GRANT {owner} TO {role}"))
    if not may_create:
        problem = f"the role {role} may not create tables in the schema {schema}"
        found.append((problem, f"run: GRANT CREATE, USAGE ON SCHEMA {schema} TO {role}"))
    return tuple(found)


@cache
def _tables() -> list[str]:
    """The tables that migrations create. Other programs may have tables in the same schema."""
    texts = (migration.text for migration in sql_loader.migrations("postgres"))
    return sorted({"migrations", *(name for text in texts for name in re.findall(r"CREATE TABLE (\w+)", text))})
