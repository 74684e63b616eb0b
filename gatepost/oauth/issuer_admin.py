"""Adding and removing trusted issuers: the operator's commands. Each change is recorded in the account's ledger."""

from gatepost.accounts import Account
from gatepost.core.errors import BadSetting, NotFound, Refused
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
    """Add a trusted issuer. Its client must have a grant for the scopes."""
    added = issuers.define(
        name, account=account.id, issuer=issuer, jwks_uri=jwks_uri, match=match, client=client, scope=scope,
        once=once, at=tx.at,
    )  # fmt: skip
    problem = url_problem(service.policy_for(account.name), jwks_uri)
    if problem:
        raise BadSetting(f"--jwks-uri: {problem}")
    owner = client_admin.named(tx, client)
    if owner.account != account.id:
        raise NotFound(f"there is no client {client} in the account {account.name}")
    grant = owner.grant(JWT_BEARER)
    if grant is None:
        raise Refused(f"client {client} has no active grant {JWT_BEARER}; add it to its grant_types first")
    for scope_name in added.scope:
        if scope_name not in grant.scopes or scope_name in scopes.RESERVED_NAMES:
            raise Refused(f"--scope: {scope_name} is not in the client's grant {JWT_BEARER}")
    if not issuer_rows.add(tx, added):
        raise Refused(f"{account.name} already has an issuer {name}; choose another name, or remove it first")
    recorded = {"name": name, "issuer": issuer, "match": added.match, "client": client, "scope": added.scope}
    data = {"issuer": recorded | ({"once": True} if once else {})}
    record(tx, account, "account.changed", Origin(OPERATOR), account.id, data)
    return added


def named(tx: Tx, account: Account, name: str) -> Issuer:
    """The trusted issuer with this name. Raises `BadSetting` if there is none."""
    issuer = next((issuer for issuer in issuer_rows.load(tx, account.id) if issuer.name == name), None)
    if issuer is None:
        raise _unknown(account, name)
    return issuer


def remove(tx: Tx, account: Account, name: str) -> None:
    """Remove a trusted issuer. Tokens that were obtained with its tokens are no longer valid."""
    if not issuer_rows.remove(tx, account.id, name):
        raise _unknown(account, name)
    record(tx, account, "account.changed", Origin(OPERATOR), account.id, {"issuer_removed": name})


def _unknown(account: Account, name: str) -> BadSetting:
    return NotFound(f"there is no issuer {name} in {account.name}; `gatepost issuer list` lists the issuers")
