"""`gatepost outbox`: a database role publishes for the accounts that it was granted."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

import gatepost
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
