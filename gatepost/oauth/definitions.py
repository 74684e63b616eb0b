"""Defining clients and scopes: POST /oauth/clients and POST /oauth/scopes."""

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
from gatepost.oauth.scopes import Scope
from gatepost.oauth.service import Service
from gatepost.store.transaction import Tx


def client(tx: Tx, service: Service, account: Account, call: Call) -> Answer:
    """POST /oauth/clients."""
    known: Client | None = None
    if "client_id" in call.body:
        wanted = call.body["client_id"]
        known = client_rows.load_uncached(tx, wanted) if isinstance(wanted, str) else None
        if known is None or known.account != account.id:
            return _refuse_client(tx, account, call, Refusal("not_found", "client_id: no such client", "/client_id"))
        beyond = _escalation(known, call.caller)
        if beyond:
            return _refuse_client(tx, account, call, beyond)
        if len(call.body) == 1:
            return Answer(200, clients.render(known, client_rows.secrets_used(tx, known)), None)
    elif client_rows.count(tx, account.id) >= account["max_clients"]:
        limit = Refusal("limit_reached", f"the account has its {account['max_clients']} clients (max_clients)")
        return _refuse_client(tx, account, call, limit)
    defined = client_rules.define(
        call.body, known, account=account.id, base_url=service.base_url, at=tx.at, strict=account.strict
    )  # fmt: skip
    if isinstance(defined, Refusal):
        return _refuse_client(tx, account, call, defined)
    problem = (
        _escalation(defined.client, call.caller)
        or _unknown_scope(tx, service, defined.client)
        or _not_ours(tx, service, defined.client)
        or _not_to_be_fetched(service, account, defined.client)
    )
    if problem:
        return _refuse_client(tx, account, call, problem)
    made, secret = defined.client, None
    if defined.needs_secret:
        secret = new_client_secret()
        made = clients.with_secret(made, digest(service.keys.hash, secret.reveal()), defined.overlap, tx.at)
    return _keep_client(tx, account, call, known, made, secret)


def _keep_client(
    tx: Tx, account: Account, call: Call, known: Client | None, made: Client, secret: Secret | None
) -> Answer:
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


def _refuse_client(tx: Tx, account: Account, call: Call, refusal: Refusal) -> Answer:
    return refused(tx, account, "oauth.client.refused", call.origin, refusal)


def _escalation(client: Client, caller: Caller) -> Refusal | None:
    """Nobody creates, changes, rotates or reads a client that can do more with the service than the caller can."""
    return _beyond(client.operations(), caller)


def check_repeated(tx: Tx, caller: Caller, answer: dict[str, Any]) -> Refusal | None:
    """The same rule for a kept answer: for the client as it was then, which the answer shows, and as it is now."""
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


def _not_ours(tx: Tx, service: Service, client: Client) -> Refusal | None:
    for resource in client.serves:
        own = _needs_no_owner(service, client.account, resource)
        if not own and scope_rows.resource_owner(tx, resources.owned_as(resource)) != client.account:
            return Refusal("invalid_client_metadata", f"serves: {resource} is not a resource of the account", "/serves")
    return None


def _not_to_be_fetched(service: Service, account: Account, client: Client) -> Refusal | None:
    """The guard judges again when its key set is fetched."""
    problem = url_problem(service.policy_for(account.name), client.jwks_uri) if client.jwks_uri else ""
    return Refusal("invalid_client_metadata", f"jwks_uri: {problem}", "/jwks_uri") if problem else None


def _needs_no_owner(service: Service, account: str, resource: str) -> bool:
    """The account's default, and what the operator named as shared by all accounts."""
    return resource == scopes.default_resource(account) or service.shared_resources.includes(resource)


def scope(tx: Tx, service: Service, account: Account, call: Call) -> Answer:
    """POST /oauth/scopes."""
    name = call.body.get("name")
    known = scope_rows.load_uncached(tx, account.id, name) if isinstance(name, str) and "\0" not in name else None
    defined = scopes.define(call.body, known, account=account.id, base_url=service.base_url, at=tx.at)
    if isinstance(defined, Refusal):
        return _refuse_scope(tx, account, call, defined)
    if known is None and scope_rows.count(tx, account.id) >= account["max_scopes"]:
        limit = Refusal("limit_reached", f"the account has its {account['max_scopes']} scopes (max_scopes)")
        return _refuse_scope(tx, account, call, limit)
    shared = _of_a_shared_resource(service, known, defined)
    if shared is not None:
        return _refuse_scope(tx, account, call, shared)
    own = _needs_no_owner(service, account.id, defined.resource)
    if not own and not scope_rows.claim_resource(tx, resources.owned_as(defined.resource), account.id):
        taken = Refusal("invalid_request", "resource: belongs to another account", "/resource")
        return _refuse_scope(tx, account, call, taken)
    if known is None:
        scope_rows.add(tx, defined)
        entry = record(tx, account, "oauth.scope.created", call.origin, defined.name, {"resource": defined.resource})
        return Answer(201, scopes.render(defined), entry.name)
    changed = changed_members(known, defined)
    if not changed:
        return Answer(200, scopes.render(known), None)
    scope_rows.update(tx, defined)
    data = {"changed": changed, "resource": defined.resource, "status": defined.status}
    entry = record(tx, account, "oauth.scope.changed", call.origin, defined.name, data)
    return Answer(200, scopes.render(defined), entry.name)


def _of_a_shared_resource(service: Service, known: Scope | None, defined: Scope) -> Refusal | None:
    """Its scopes are the operator's. One that an account defined before can still be retired or given up."""
    shared, changed = service.shared_resources, known is None or bool(changed_members(known, defined))
    if changed and defined.status == "active" and shared.includes(defined.resource):
        words = f"resource: {defined.resource} is shared by all accounts; its scopes are defined by the operator"
        return Refusal("invalid_request", words, "/resource")
    if known is None and defined.name in shared.by_scope:
        words = f"name: {defined.name} is a scope of the shared resource {shared.by_scope[defined.name]}"
        return Refusal("invalid_request", words, "/name")
    return None


def _refuse_scope(tx: Tx, account: Account, call: Call, refusal: Refusal) -> Answer:
    return refused(tx, account, "oauth.scope.refused", call.origin, refusal)
