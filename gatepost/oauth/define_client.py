"""POST /oauth/clients: create or change a client, and record it."""

from typing import Any

import msgspec

from gatepost.accounts import Account
from gatepost.core.errors import Refusal
from gatepost.core.secrets import Secret, digest, new_client_secret
from gatepost.egress.address_guard import url_problem
from gatepost.ledger import operations
from gatepost.ledger.operations import Answer, Call, Caller, changed_members, refused
from gatepost.ledger.record import record
from gatepost.oauth import client_rows, client_rules, clients, resources, scope_rows, scopes
from gatepost.oauth.clients import Client
from gatepost.oauth.define_scope import needs_no_owner
from gatepost.oauth.service import Service
from gatepost.store.transaction import Tx


def define(tx: Tx, service: Service, account: Account, call: Call) -> Answer:
    known: Client | None = None
    if "client_id" in call.body:
        wanted = call.body["client_id"]
        known = client_rows.load_uncached(tx, wanted) if isinstance(wanted, str) else None
        if known is None or known.account != account.id:
            return _refuse(tx, account, call, Refusal("not_found", "client_id: no such client", "/client_id"))
        beyond = _escalation(known, call.caller)
        if beyond:
            return _refuse(tx, account, call, beyond)
        if len(call.body) == 1:
            return Answer(200, clients.render(known, client_rows.secrets_used(tx, known)), None)
    elif client_rows.count(tx, account.id) >= account["max_clients"]:
        limit = Refusal("limit_reached", f"the account has its {account['max_clients']} clients (max_clients)")
        return _refuse(tx, account, call, limit)
    defined = client_rules.define(
        call.body, known, account=account.id, base_url=service.base_url, at=tx.at, strict=account.strict
    )  # fmt: skip
    if isinstance(defined, Refusal):
        return _refuse(tx, account, call, defined)
    problem = (
        _escalation(defined.client, call.caller)
        or _unknown_scope(tx, service, defined.client)
        or _foreign_resource(tx, service, defined.client)
        or _forbidden_jwks_uri(service, account, defined.client)
    )
    if problem:
        return _refuse(tx, account, call, problem)
    made, secret = defined.client, None
    if defined.needs_secret:
        secret = new_client_secret()
        made = clients.with_secret(made, digest(service.keys.hash, secret.reveal()), defined.overlap, tx.at)
    return _store(tx, account, call, known, made, secret)


def _store(tx: Tx, account: Account, call: Call, known: Client | None, made: Client, secret: Secret | None) -> Answer:
    if known is None:
        client_rows.add(tx, made)
        data: dict[str, Any] = {"scope": made.scope, "grant_types": made.grant_types, "status": made.status}
        if made.client_name:
            data["client_name"] = made.client_name
        entry = record(tx, account, "oauth.client.created", call.origin, made.id, data)
    else:
        changed = changed_members(known, made)
        if not changed:
            return Answer(200, clients.render(known, client_rows.secrets_used(tx, known)), None)
        made = msgspec.structs.replace(made, updated_at=tx.at)
        client_rows.update(tx, made)
        data = {"changed": changed, "status": made.status, "scope": made.scope}
        entry = record(tx, account, "oauth.client.changed", call.origin, made.id, data)
    body = clients.render(made, client_rows.secrets_used(tx, made))
    if secret is not None:
        body["client_secret"] = secret.reveal()
    return Answer(200 if known else 201, body, entry.name, secret=secret is not None)


def _refuse(tx: Tx, account: Account, call: Call, refusal: Refusal) -> Answer:
    return refused(tx, account, "oauth.client.refused", call.origin, refusal)


def _escalation(client: Client, caller: Caller) -> Refusal | None:
    """A caller may only define and read clients that have no other `gatepost:` scopes than its own token."""
    return _beyond(client.operations(), caller)


def check_repeated(tx: Tx, caller: Caller, answer: dict[str, Any]) -> Refusal | None:
    """The same rule for a stored response: for the client in that response, and for the client as it is now."""
    current = client_rows.load_uncached(tx, answer["client_id"])
    then = operations.OPERATIONS.keys() & scopes.split(answer.get("scope", ""))
    return _beyond(then | (current.operations() if current else set()), caller)


def _beyond(needed: set[str], caller: Caller) -> Refusal | None:
    beyond = sorted(needed - caller.scopes)
    if not beyond:
        return None
    return Refusal("insufficient_scope", f"your token must hold {' '.join(beyond)}, which this client has", beyond[0])


def _unknown_scope(tx: Tx, service: Service, client: Client) -> Refusal | None:
    for name in scopes.split(client.scope):
        if name not in scopes.RESERVED_NAMES and service.scope(tx, client.account, name) is None:
            return Refusal("invalid_client_metadata", f"scope: {name} is not a scope of the account", "/scope")
    return None


def _foreign_resource(tx: Tx, service: Service, client: Client) -> Refusal | None:
    for resource in client.serves:
        own = needs_no_owner(service, client.account, resource)
        if not own and scope_rows.resource_owner(tx, resources.owned_as(resource)) != client.account:
            return Refusal("invalid_client_metadata", f"serves: {resource} is not a resource of the account", "/serves")
    return None


def _forbidden_jwks_uri(service: Service, account: Account, client: Client) -> Refusal | None:
    """The address guard checks the URL again when the key set is fetched."""
    problem = url_problem(service.policy_for(account.name), client.jwks_uri) if client.jwks_uri else ""
    return Refusal("invalid_client_metadata", f"jwks_uri: {problem}", "/jwks_uri") if problem else None
