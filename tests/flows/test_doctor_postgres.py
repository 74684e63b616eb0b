"""`gatepost doctor` on PostgreSQL: privileges, the search path, another encoding, and refused rows of the outbox."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests import command, postgres


@pytest.fixture
def owner(postgres_url: str, tmp_path: Path) -> command.Alone:
    made = command.alone(tmp_path / "data", postgres_url)
    made.cli("store", "migrate")
    return made


@pytest.fixture
def other(owner: command.Alone) -> Iterator[command.Alone]:
    """A role that has no privileges yet."""
    owner.execute("CREATE ROLE other LOGIN")
    database = owner.database.replace(f"{postgres.OWNER}@", "other@")
    yield command.Alone(owner.directory, database, owner.environment | {"GATEPOST_DATABASE": database})
    owner.execute("DROP OWNED BY other")
    owner.execute("DROP ROLE other")


def checks(store: command.Alone, name: str) -> list[tuple[str, str]]:
    """The status and the text of the checks with this name."""
    results = json.loads(store.cli("doctor", "--json", check=False).stdout)
    return [(each["status"], f"{each['found']}; {each['do']}") for each in results if each["check"] == name]


def test_the_privileges_of_the_role(owner: command.Alone, other: command.Alone) -> None:
    assert checks(owner, "privileges") == []
    owner.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO other")
    [(status, text), (_, create)] = checks(other, "privileges")
    assert status == "problem"
    assert "the role other may not read and write" in text
    assert "may not create tables in the schema public; run: GRANT CREATE, USAGE ON SCHEMA public TO other" in create
    owner.execute("GRANT CREATE, USAGE ON SCHEMA public TO other")
    owner.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO other")
    [(status, text)] = checks(other, "privileges")
    assert status == "problem"
    assert "does not own the tables, so it can neither create and drop partitions" in text
    assert f"GRANT {postgres.OWNER} TO other" in text
    owner.execute(f"GRANT {postgres.OWNER} TO other")
    assert checks(other, "privileges") == []


def test_a_new_database(postgres_url: str, tmp_path: Path) -> None:
    """What is in the tables is not checked before there are any."""
    new = command.alone(tmp_path / "data", postgres_url)
    results = json.loads(new.cli("doctor", "--json", check=False).stdout)
    [problem] = [each for each in results if each["status"] == "problem"]
    assert problem["check"] == "schema"
    assert "the store has no tables yet" in problem["found"]


def test_a_database_that_cannot_write(owner: command.Alone) -> None:
    assert [status for status, _ in checks(owner, "store")] == ["ok"]
    name = urlsplit(owner.database).path[1:]
    owner.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    [(status, text)] = checks(owner, "store")
    assert (status, ", is read-only" in text) == ("problem", True), "it is not used"
    database = f"{owner.database}&target_session_attrs=any"
    reader = command.Alone(owner.directory, database, owner.environment | {"GATEPOST_DATABASE": database})
    [(status, text)] = checks(reader, "store")
    assert status == "problem"
    assert "responds, but cannot write: default_transaction_read_only is on; connect to the primary" in text


def test_a_role_that_may_not_use_the_schema(owner: command.Alone, other: command.Alone) -> None:
    owner.execute("REVOKE ALL ON SCHEMA public FROM public")
    [(status, text)] = checks(other, "search path")
    assert status == "problem"
    assert 'no schema of the search path ("$user", public) exists that the role other may use' in text
    assert "run: GRANT CREATE, USAGE ON SCHEMA public TO other" in text
    assert checks(other, "schema") == checks(other, "privileges") == []
    ended = other.cli("account", "list", check=False)
    assert (ended.returncode, "exists that the role other may use" in ended.stderr) == (2, True)


def test_a_schema_with_the_name_of_the_role_that_appears_later(owner: command.Alone) -> None:
    """It is the first one of the default search path. A second store would be created there, without any account."""
    owner.cli("account", "create", "acme")
    assert checks(owner, "search path") == []
    owner.execute(f"CREATE SCHEMA AUTHORIZATION {postgres.OWNER}")
    text = f"the store is in the schema public, but the search path has {postgres.OWNER} before it"
    [(status, found)] = checks(owner, "search path")
    assert (status, found.startswith(text)) == ("problem", True)
    ended = owner.cli("store", "migrate", check=False)
    assert (ended.returncode, ended.stderr.startswith(f"gatepost: database: {text}")) == (2, True)
    assert "acme" in owner.cli("account", "list").stdout
    owner.execute(ended.stderr.partition("run: ")[2].partition(";")[0])
    owner.cli("store", "migrate")
    assert checks(owner, "search path") == []
    assert "acme" in owner.cli("account", "list").stdout


def test_refused_rows_of_the_outbox(owner: command.Alone) -> None:
    assert checks(owner, "outbox") == []
    owner.execute("INSERT INTO gatepost_outbox (account, type, data) VALUES ('nobody', 'a.b', '1')")
    assert checks(owner, "outbox") == [], "it waits"
    owner.execute("UPDATE gatepost_outbox SET refused = 'there is no account nobody'")
    [(status, text)] = checks(owner, "outbox")
    assert status == "warning"
    assert "refused rows in gatepost_outbox: 1;" in text


def test_an_encoding_other_than_utf_8(postgres_server: postgres.Server, tmp_path: Path) -> None:
    with psycopg.connect(postgres_server.url(), autocommit=True) as database:
        database.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    store = command.alone(tmp_path / "data", postgres_server.url("latin"))
    text = (
        "database: the database has the encoding LATIN1, but must have UTF8; "
        "create it with ENCODING 'UTF8' TEMPLATE template0"
    )
    assert checks(store, "store") == [("problem", f"{text}; ")]
    ended = store.cli("store", "migrate", check=False)
    assert (ended.returncode, ended.stderr) == (2, f"gatepost: {text}\n")
    postgres_server.drop_database("latin")
