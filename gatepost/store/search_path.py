"""Which schema of the search path of PostgreSQL has the store, and why migrations cannot create tables there.

Statements use the whole search path, but tables are created in its first schema. Both must be the same schema.
"""

from typing import Any, NamedTuple

import psycopg

from gatepost.core.errors import BadSetting

Database = psycopg.Connection[tuple[Any, ...]]

# The first schema is `current_schema()`. Other programs have tables with the name `migrations`, too.
_SCHEMAS = """
SELECT quote_ident(schema), c.oid IS NOT NULL,
  (SELECT count(*) FROM pg_attribute WHERE attrelid = c.oid AND attname IN ('number', 'checksum')) = 2
FROM unnest(current_schemas(false)) WITH ORDINALITY AS path (schema, position)
  LEFT JOIN pg_class c ON c.oid = to_regclass(quote_ident(schema) || '.migrations') ORDER BY position
"""
_SETTING = """
SELECT quote_ident(session_user), quote_ident(current_user), quote_ident(current_database()),
  current_setting('search_path')
"""


class Schema(NamedTuple):
    """A schema of the search path, and whether it has a table `migrations`, of Gatepost or of another program."""

    name: str
    has_table: bool
    has_store: bool


class Problem(NamedTuple):
    """Why no table can be created for the store, and what to do about it."""

    found: str
    do: str


def is_migrated(database: Database) -> bool:
    """Whether statements use a store, in any schema."""
    schemas = _schemas(database)
    return next((schema.has_store for schema in schemas if schema.has_table), False)


def problem(database: Database) -> Problem | None:
    """Why migrations cannot create tables in the first schema of the search path."""
    schemas = _schemas(database)
    [(login, role, name, path)] = database.execute(_SETTING).fetchall()
    setting = f"ALTER ROLE {login} IN DATABASE {name} SET search_path ="
    if not schemas:
        return Problem(
            f"no schema of the search path ({path}) exists that the role {role} may use",
            f"run: GRANT CREATE, USAGE ON SCHEMA public TO {role}; or create a schema, and set search_path to it",
        )
    first, *others = schemas
    store = next((schema.name for schema in others if schema.has_store), "")
    if first.has_store:
        return None
    if store:
        do = f"to use that store, run: {setting} {store}"
        if not first.has_table:
            do += f"; to create another one in {first.name}, run: {setting} {first.name}"
        return Problem(
            f"the store is in the schema {store}, but the search path has {first.name} before it, "
            "where tables would be created",
            do,
        )
    if first.has_table:
        return Problem(
            f"the table {first.name}.migrations belongs to another program",
            f"give Gatepost a schema of its own; run: CREATE SCHEMA gatepost; {setting} gatepost",
        )
    return None


def check(database: Database) -> None:
    """Raise `BadSetting` if migrations cannot create tables in the first schema of the search path."""
    if found := problem(database):
        raise BadSetting(f"database: {found.found}; {found.do}")


def _schemas(database: Database) -> list[Schema]:
    return [Schema(*row) for row in database.execute(_SCHEMAS)]
