"""The operations that define clients, scopes, endpoints and subscriptions. They require an access token of Gatepost."""

import re
from typing import NamedTuple

from gatepost.accounts import Account, account_rows
from gatepost.core.errors import Refusal
from gatepost.ledger import operations
from gatepost.ledger.operations import Answer, Call, Caller, CheckRepeated, Define, refused
from gatepost.oauth import access_tokens, define_client, define_scope
from gatepost.oauth.service import Service
from gatepost.store.transaction import Tx
from gatepost.web import bearer
from gatepost.web.context import Context, Handler
from gatepost.web.requests import Request, json_object
from gatepost.web.responses import NO_STORE, Header, Reply, json, refuse
from gatepost.webhooks import define_endpoint, define_subscription


class Operation(NamedTuple):
    """An operation that creates or changes a resource."""

    noun: str  # of the event types in the ledger: a refusal is recorded as `<noun>.refused`
    scope: str
    define: Define[Service]
    check_repeated: CheckRepeated | None = None


CLIENTS = Operation("oauth.client", "gatepost:clients", define_client.define, define_client.check_repeated)
SCOPES = Operation("oauth.scope", "gatepost:scopes", define_scope.define)
ENDPOINTS = Operation("webhook.endpoint", "gatepost:endpoints", define_endpoint.define)
SUBSCRIPTIONS = Operation("webhook.subscription", "gatepost:subscriptions", define_subscription.define)
_KEY = re.compile(r"[ -~]{1,255}")


def perform(operation: Operation) -> Handler:
    """The handler of an operation. The token is checked before the body is parsed."""

    async def answer(context: Context, request: Request) -> Reply:
        token = bearer.read_token(context, request)
        if token is None:
            return bearer.unauthenticated(context, request, operation.scope)
        rejected = await context.check_token(token)
        if rejected is not None:
            return reply(context, request, operation.scope, rejected)
        key = idempotency_key(request)
        body = key if isinstance(key, Refusal) else json_object(request)

        def unit(tx: Tx) -> Answer | Refusal:
            caller = access_tokens.authenticate(tx, context.service, token)
            if isinstance(caller, Refusal):
                return caller
            if operation.scope not in caller.scopes:
                refusal = insufficient_scope(operation.scope)
            elif isinstance(body, Refusal):
                refusal = body
            else:
                valid_key = "" if isinstance(key, Refusal) else key
                call = Call(caller, body, request.id, request.source, valid_key, request.body)
                return operations.once(
                    tx, context.service, call, operation.noun, operation.define, operation.check_repeated
                )
            return record_refusal(tx, caller, request, f"{operation.noun}.refused", refusal)

        outcome = await context.store.run(unit)
        if isinstance(outcome, Refusal):
            context.forget_token(token)
        return reply(context, request, operation.scope, outcome)

    return answer


def idempotency_key(request: Request) -> str | Refusal:
    """The value of the header Idempotency-Key, or an empty string."""
    key = request.headers.get("idempotency-key")
    if key is not None and not _KEY.fullmatch(key):
        return Refusal("invalid_request", "Idempotency-Key: must be 1 to 255 printable ASCII characters")
    return key or ""


def insufficient_scope(scope: str) -> Refusal:
    """The refusal of a token that does not have the scope. RFC 6750, section 3.1."""
    return Refusal("insufficient_scope", f"this operation requires the scope {scope}", scope)


def load_account(tx: Tx, caller: Caller) -> Account:
    """The account of a caller that was authenticated in the same transaction."""
    account = account_rows.load(tx, caller.account)
    if account is None:
        raise LookupError(caller.account)
    return account


def record_refusal(tx: Tx, caller: Caller, request: Request, type_: str, refusal: Refusal) -> Answer:
    """Record a refusal in the ledger of the caller's account."""
    return refused(tx, load_account(tx, caller), type_, caller.origin(request.id, request.source), refusal)


def reply(context: Context, request: Request, scope: str, outcome: Answer | Refusal) -> Reply:
    """The response of an operation that requires the scope. A refusal without an answer was not recorded."""
    if isinstance(outcome, Refusal):
        outcome = Answer(outcome.status, {}, None, outcome)
    headers: tuple[Header, ...] = (("gatepost-event", outcome.event),) if outcome.event else ()
    refusal = outcome.refusal
    if refusal is None:
        return json(outcome.status, outcome.body, NO_STORE, *headers)
    if refusal.status in (401, 403):
        needed = refusal.pointer if refusal.code == "insufficient_scope" else scope
        headers = (bearer.challenged(context, request, refusal, needed), *headers)
    return refuse(request.path, refusal, *headers)
