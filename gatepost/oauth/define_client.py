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
from gatepost.oauth.service import Service
from gatepost.store.transaction import Tx


def define(tx: Tx, service: Service, account: Account, call: Call) -> Answer:
    """Create a client, or change or read the one that the body names."""
    outcome = _define(tx, service, account, call)
    if isinstance(outcome, Refusal):
        return refused(tx, account, "oauth.client.refused", call.origin, outcome)
    return outcome


def _define(tx: Tx, service: Service, account: Account, call: Call) -> Answer | Refusal:
    current: Client | None = None
    if "client_id" in call.body:
        client_id = call.body["client_id"]
        current = client_rows.load_uncached(tx, client_id) if isinstance(client_id, str) else None
        if current is None or current.account != account.id:
            return Refusal("not_found", "client_id: no such client", "/client_id")
        beyond = _escalation(current.operations(), call.caller)
        if beyond:
            return beyond
        if len(call.body) == 1:
            return Answer(200, render(tx, current), None)
    elif client_rows.count(tx, account.id) >= account["max_clients"]:
        return Refusal("limit_reached", f"the account has its {account['max_clients']} clients (max_clients)")
    defined = client_rules.define(
        call.body, current, account=account.id, base_url=service.base_url, at=tx.at, strict=account.strict
    )  # fmt: skip
    if isinstance(defined, Refusal):
        return defined
    client, secret = defined.client, None
    refusal = _escalation(client.operations(), call.caller) or _check_references(tx, service, account, client, current)
    if refusal:
        return refusal
    if defined.needs_secret:
        secret = new_client_secret()
        client = clients.with_secret(client, digest(service.keys.hash, secret.reveal()), defined.overlap, tx.at)
    return _store(tx, account, call, current, client, secret)


def _store(
    tx: Tx, account: Account, call: Call, current: Client | None, client: Client, secret: Secret | None
) -> Answer:  # fmt: skip
    if current is None:
        client_rows.add(tx, client)
        data: dict[str, Any] = {"scope": client.scope, "grant_types": client.grant_types, "status": client.status}
        if client.client_name:
            data["client_name"] = client.client_name
        entry = record(tx, account, "oauth.client.created", call.origin, client.id, data)
    else:
        renamed = {"explicit_grants": "grants"}
        changed = list(dict.fromkeys(renamed.get(name, name) for name in changed_members(current, client)))
        if not changed:
            return Answer(200, render(tx, current), None)
        client = msgspec.structs.replace(client, updated_at=tx.at)
        client_rows.update(tx, client)
        data = {"changed": changed, "status": client.status, "scope": client.scope}
        entry = record(tx, account, "oauth.client.changed", call.origin, client.id, data)
    body = render(tx, client)
    if secret is not None:
        body["client_secret"] = secret.reveal()
    return Answer(200 if current else 201, body, entry.name, secret=secret is not None)


def render(tx: Tx, client: Client) -> dict[str, Any]:
    """The client as the operator and callers see it, without the values of secrets, and without expired ones."""
    valid = [secret for secret in client.secrets if secret.is_active(tx.at)]
    return clients.render(msgspec.structs.replace(client, secrets=valid), client_rows.secrets_used(tx, client))


def check_repeated(tx: Tx, caller: Caller, answer: dict[str, Any]) -> Refusal | None:
    """Whether the caller may read a stored response: the client as it was then, and as it is now."""
    current = client_rows.load_uncached(tx, answer["client_id"])
    then = operations.OPERATIONS.keys() & scopes.split(answer.get("scope", ""))
    return _escalation(then | (current.operations() if current else set()), caller)


def _escalation(needed: set[str], caller: Caller) -> Refusal | None:
    """A caller may only define and read clients that have no other `gatepost:` scopes than its own token."""
    beyond = sorted(needed - caller.scopes)
    if not beyond:
        return None
    missing = " ".join(beyond)
    return Refusal("insufficient_scope", f"your token must hold {missing}, which this client has", missing)


def _check_references(
    tx: Tx, service: Service, account: Account, client: Client, current: Client | None
) -> Refusal | None:
    """New scopes and resources belong to the account, and the address guard allows a new URL of the key set.

    What the client had before is not checked: it may have become invalid, and must not block other changes. A scope is
    checked again when a token is issued, and the URL when the key set is fetched.
    """
    before = current or Client(client.id, account.id, tx.at, tx.at)
    for name in client_rules.added(scopes.split(before.scope), scopes.split(client.scope)):
        if name not in scopes.RESERVED_NAMES and service.scope(tx, account.id, name) is None:
            return clients.MEMBERS.refusal("scope", f"{name} is not a scope of the account")
    problem = _serves_problem(tx, service, account.id, client_rules.added(before.serves, client.serves))
    if problem:
        return clients.MEMBERS.refusal("serves", problem)
    if client.jwks_uri is None or client.jwks_uri == before.jwks_uri:
        return None
    problem = url_problem(service.policy_for(account.name), client.jwks_uri)
    return clients.MEMBERS.refusal("jwks_uri", problem) if problem else None


def _serves_problem(tx: Tx, service: Service, account: str, serves: list[str]) -> str:
    """What is wrong with resources in `serves`. They are compared with the `aud` of tokens, which a scope names."""
    shared = service.shared_resources
    named = {scopes.default_resource(account), *shared.by_scope.values()}
    others = client_rules.added(named, serves)
    own = scope_rows.resources(tx, account) if others else set()
    named.update(resource for resource in own if not shared.includes(resource))
    for resource in others:
        owned = resources.owned_as(resource)
        if not shared.includes(resource) and scope_rows.resource_owner(tx, owned) != account:
            return f"{resource} is not a resource of the account"
        if resource not in named:
            exact = next((name for name in named if resources.owned_as(name) == owned), None)
            if exact is None:
                return f"no scope has the resource {resource}"
            return f"{resource} must be {exact}, as its scopes name it"
    return ""
