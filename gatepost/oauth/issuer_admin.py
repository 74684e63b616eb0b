"""Trusted issuers of an account: what the operator's commands do. Each change is in the account's ledger."""

from gatepost.accounts import Account
from gatepost.core.errors import BadSetting
from gatepost.egress.address_guard import url_problem
from gatepost.ledger.entries import OPERATOR, Origin
from gatepost.ledger.record import record
from gatepost.oauth import client_admin, issuer_rows, issuers, scopes
from gatepost.oauth.client_grants import JWT_BEARER
from gatepost.oauth.issuers import Issuer
from gatepost.oauth.service import Service
from gatepost.store.transaction import Tx


def add(
    tx: Tx, service: Service, account: Account, name: str, *, issuer: str, jwks_uri: str, match: list[str],
    client: str, scope: list[str], once: bool = False,
) -> Issuer:  # fmt: skip
    made = issuers.define(
        name, account=account.id, issuer=issuer, jwks_uri=jwks_uri, match=match, client=client, scope=scope,
        once=once, at=tx.at,
    )  # fmt: skip
    problem = url_problem(service.policy_for(account.name), jwks_uri)
    if problem:
        raise BadSetting(f"--jwks-uri: {problem}")
    found = client_admin.named(tx, client)
    if found.account != account.id:
        raise BadSetting(f"there is no client {client} in the account {account.name}")
    grant = found.grant(JWT_BEARER)
    if grant is None:
        raise BadSetting(f"client {client} has no active grant {JWT_BEARER}; add it to its grant_types first")
    for each in made.scope:
        if each not in grant.scopes or each in scopes.RESERVED_NAMES:
            raise BadSetting(f"--scope: {each} is not in the client's grant {JWT_BEARER}")
    if not issuer_rows.add(tx, made):
        raise BadSetting(
            f"there is an issuer {name} in {account.name} already; choose another name, or remove it first"
        )
    told = {"name": name, "issuer": issuer, "match": made.match, "client": client, "scope": made.scope}
    data = {"issuer": told | ({"once": True} if once else {})}
    record(tx, account, "account.changed", Origin(OPERATOR), account.id, data)
    return made


def named(tx: Tx, account: Account, name: str) -> Issuer:
    found = next((each for each in issuer_rows.load(tx, account.id) if each.name == name), None)
    if found is None:
        raise _unknown(account, name)
    return found


def _unknown(account: Account, name: str) -> BadSetting:
    return BadSetting(f"there is no issuer {name} in {account.name}; `gatepost issuer list` shows those there are")


def remove(tx: Tx, account: Account, name: str) -> None:
    if not issuer_rows.remove(tx, account.id, name):
        raise _unknown(account, name)
    record(tx, account, "account.changed", Origin(OPERATOR), account.id, {"issuer_removed": name})
