"""POST /oauth/scopes: create or change a scope, and record it."""

from gatepost.accounts import Account
from gatepost.core.errors import Refusal
from gatepost.ledger.operations import Answer, Call, changed_members, refused
from gatepost.ledger.record import record
from gatepost.oauth import resources, scope_rows, scopes
from gatepost.oauth.scopes import Scope
from gatepost.oauth.service import Service
from gatepost.store.transaction import Tx


def define(tx: Tx, service: Service, account: Account, call: Call) -> Answer:
    """Create a scope, or change the definition of the one with this name."""
    name = call.body.get("name")
    current = scope_rows.load_uncached(tx, account.id, name) if isinstance(name, str) and "\0" not in name else None
    defined = _define(tx, service, account, call, current)
    if isinstance(defined, Refusal):
        return refused(tx, account, "oauth.scope.refused", call.origin, defined)
    if current is None:
        scope_rows.add(tx, defined)
        entry = record(tx, account, "oauth.scope.created", call.origin, defined.name, {"resource": defined.resource})
        return Answer(201, scopes.render(defined), entry.name)
    changed = changed_members(current, defined)
    if not changed:
        return Answer(200, scopes.render(current), None)
    scope_rows.update(tx, defined)
    data = {"changed": changed, "resource": defined.resource, "status": defined.status}
    entry = record(tx, account, "oauth.scope.changed", call.origin, defined.name, data)
    return Answer(200, scopes.render(defined), entry.name)


def _define(tx: Tx, service: Service, account: Account, call: Call, current: Scope | None) -> Scope | Refusal:
    """The operator defines the scopes of shared resources. An account can only retire one that it defined before."""
    defined = scopes.define(call.body, current, account=account.id, base_url=service.base_url, at=tx.at)
    if isinstance(defined, Refusal):
        return defined
    if current is None and scope_rows.count(tx, account.id) >= account["max_scopes"]:
        return Refusal("limit_reached", f"the account has its {account['max_scopes']} scopes (max_scopes)")
    shared, resource = service.shared_resources, defined.resource
    retires = current is not None and defined.status == "retired" and resource == current.resource
    unchanged = current is not None and not changed_members(current, defined)
    if not (retires or unchanged) and shared.includes(resource):
        detail = f"{resource} is shared by all accounts; the operator defines its scopes"
        return scopes.MEMBERS.refusal("resource", detail)
    if current is None and defined.name in shared.by_scope:
        detail = f"{defined.name} is a scope of the shared resource {shared.by_scope[defined.name]}"
        return scopes.MEMBERS.refusal("name", detail)
    needs_no_owner = resource == scopes.default_resource(account.id) or shared.includes(resource)
    if not needs_no_owner and not scope_rows.claim_resource(tx, resources.owned_as(resource), account.id):
        return scopes.MEMBERS.refusal("resource", "belongs to another account")
    return defined
