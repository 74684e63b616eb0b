"""`gatepost outbox`: a database role publishes for the accounts that it was granted."""

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

import gatepost
from tests import command, postgres
from tests.service import Service


@pytest.fixture
def role(postgres_gatepost: Service, account_name: str) -> Iterator[str]:
    name = f"publisher-{account_name}"
    url = postgres_gatepost.environment["GATEPOST_DATABASE"]
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
        yield name
        owner.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(name)))
        owner.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def test_a_role_is_granted_one_account_and_then_another(
    postgres_gatepost: Service, account_name: str, role: str
) -> None:  # fmt: skip
    running = postgres_gatepost
    first, second = f"{account_name}-1", f"{account_name}-2"
    for name in (first, second):
        running.account(name)
    printed = running.cli("outbox", "grant", role, "--account", first, "--print").stdout
    url = running.environment["GATEPOST_DATABASE"]
    with psycopg.connect(url, user=role, autocommit=True) as database:

        def refused(account: str) -> bool:
            try:
                gatepost.publish(database, account=account, type="a.b", data=1)
            except psycopg.errors.InsufficientPrivilege:
                return True
            return False

        assert refused(first), "only printed"
        assert running.cli("outbox", "grant", role, "--account", first).stdout == printed
        assert (refused(first), refused(second)) == (False, True)
        running.cli("outbox", "grant", role, "--account", second)
        assert (refused(first), refused(second)) == (True, False)
        running.cli("outbox", "grant", role, "--account", first, "--account", second)
        assert (refused(first), refused(second)) == (False, False)
        assert running.cli_json("outbox", "revoke", role)["run"] is True
        assert (refused(first), refused(second)) == (True, True)


@pytest.fixture
def own_role(postgres_server: postgres.Server, tmp_path: Path) -> Iterator[command.Alone]:
    """A store whose role owns everything in its database, but is no superuser. It has an account acme."""
    url = postgres_server.create_database("owned")
    with psycopg.connect(url, autocommit=True) as database:
        database.execute('CREATE ROLE "Gate post" LOGIN')
        database.execute('ALTER SCHEMA public OWNER TO "Gate post"')
    made = command.alone(tmp_path / "data", url.replace(f"{postgres.OWNER}@", "Gate%20post@"))
    made.cli("store", "migrate")
    made.cli("account", "create", "acme")
    yield made
    with psycopg.connect(url, autocommit=True) as database:
        database.execute('DROP OWNED BY "Gate post"')
        database.execute('DROP ROLE "Gate post"')
    postgres_server.drop_database("owned")


def test_gateposts_own_role_keeps_its_privileges(own_role: command.Alone, postgres_server: postgres.Server) -> None:
    grant, revoke = ("outbox", "grant", "--account", "acme"), ("outbox", "revoke")
    as_superuser = postgres_server.url("owned")
    for arguments in ((*grant, "Gate post"), (*revoke, "Gate post"), (*grant, "--print", "Gate post")):
        ended = own_role.cli(*arguments, check=False)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.startswith("gatepost: Gate post is the role that owns the outbox, or that this command")
        ended = own_role.cli(*arguments, "--database", as_superuser, check=False)
        assert (ended.returncode, ended.stdout) == (2, ""), "the role of the connection is another one"
        ended = own_role.cli(*arguments[:-1], postgres.OWNER, "--database", as_superuser, check=False)
        assert (ended.returncode, ended.stdout) == (2, ""), "a superuser that does not own the table"
    for name in ("gate post", "GATE POST", '"Gate post"'):  # PostgreSQL knows no such role
        for command_ in (grant, revoke):
            ended = own_role.cli(*command_, name, check=False)
            assert (ended.returncode, "does not exist" in ended.stderr) == (4, True)
    own_role.execute("SELECT 1 FROM gatepost_outbox FOR UPDATE")


def test_doctor_tells_how_to_restore_privileges_of_the_owner(own_role: command.Alone) -> None:
    own_role.execute('REVOKE ALL ON gatepost_outbox, deliveries FROM "Gate post"')
    results = json.loads(own_role.cli("doctor", "--json", check=False).stdout)
    [found] = [each for each in results if each["check"] == "privileges"]
    assert found["found"] == "the role Gate post may not read and write 2 of the tables"
    assert found["do"] == 'run: GRANT ALL ON deliveries, gatepost_outbox TO "Gate post"'
    own_role.execute(found["do"].removeprefix("run: "))
    results = json.loads(own_role.cli("doctor", "--json", check=False).stdout)
    assert [each for each in results if each["check"] == "privileges"] == []


def test_what_cannot_be_granted(postgres_gatepost: Service, sqlite_gatepost: Service, account_name: str) -> None:
    postgres_gatepost.account(account_name)
    for running, arguments, words in (
        (postgres_gatepost, ("no-such-role", "--account", account_name), "does not exist"),
        (postgres_gatepost, ("public", "--account", account_name), "not the name of a role"),
        (postgres_gatepost, ("anybody", "--account", "no-such-account"), "there is no account"),
        (sqlite_gatepost, ("anybody", "--account", account_name), "needs PostgreSQL"),
    ):
        done = running.cli("outbox", "grant", *arguments, check=False)
        assert done.returncode != 0
        assert words in done.stderr
