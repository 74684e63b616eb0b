"""The operations that define clients, scopes, endpoints and subscriptions. They require an access token of Gatepost."""

import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from gatepost.accounts import account_rows
from gatepost.core.errors import Refusal
from gatepost.ledger import operations
from gatepost.ledger.operations import Answer, Call, Caller, CheckRepeated, Define, refused
from gatepost.oauth import access_tokens, define_client, define_scope
from gatepost.oauth.service import Service
from gatepost.store.transaction import Tx
from gatepost.web import bearer
from gatepost.web.context import Context
from gatepost.web.requests import Request, json_object
from gatepost.web.responses import NO_STORE, Header, Reply, json, refuse
from gatepost.webhooks import define_endpoint, define_subscription


class Operation(NamedTuple):
    noun: str  # of the event types in the ledger: a refusal is recorded as `<noun>.refused`
    scope: str
    define: Define[Service]
    check_repeated: CheckRepeated | None = None


CLIENTS = Operation("oauth.client", "gatepost:clients", define_client.define, define_client.check_repeated)
SCOPES = Operation("oauth.scope", "gatepost:scopes", define_scope.define)
ENDPOINTS = Operation("webhook.endpoint", "gatepost:endpoints", define_endpoint.define)
SUBSCRIPTIONS = Operation("webhook.subscription", "gatepost:subscriptions", define_subscription.define)


_KEY = re.compile(r"[ -~]{1,255}")


def perform(operation: Operation) -> Callable[[Context, Request], Awaitable[Reply]]:
    async def answer(context: Context, request: Request) -> Reply:
        sent = bearer.read_token(context, request)
        if sent is None:
            return bearer.unauthenticated(context, request, operation.scope)
        rejected = await context.check_token(sent)
        if rejected is not None:
            return reply(context, request, operation.scope, rejected)
        key = idempotency_key(request)
        body = key if isinstance(key, Refusal) else json_object(request)

        def unit(tx: Tx) -> Answer | Refusal:
            caller = access_tokens.authenticate(tx, context.service, sent)
            if isinstance(caller, Refusal):
                return caller
            return _answer(tx, context, operation, caller, request, body, "" if isinstance(key, Refusal) else key)

        outcome = await context.store.run(unit)
        if isinstance(outcome, Refusal):
            context.forget_token(sent)
        return reply(context, request, operation.scope, outcome)

    return answer


def idempotency_key(request: Request) -> str | Refusal:
    """The value of the header, or an empty string."""
    key = request.headers.get("idempotency-key")
    if key is not None and not _KEY.fullmatch(key):
        return Refusal("invalid_request", "Idempotency-Key: must be 1 to 255 printable ASCII characters")
    return key or ""


def _answer(
    tx: Tx, context: Context, operation: Operation, caller: Caller, request: Request,
    body: dict[str, object] | Refusal, key: str,
) -> Answer:  # fmt: skip
    account = account_rows.load(tx, caller.account)
    if account is None:
        raise LookupError(caller.account)
    if operation.scope not in caller.scopes:
        why = Refusal("insufficient_scope", f"this operation needs the scope {operation.scope}", operation.scope)
    elif isinstance(body, Refusal):
        why = body
    else:
        call = Call(caller, body, request.id, request.source, key, request.body)
        return operations.once(tx, context.service, call, operation.noun, operation.define, operation.check_repeated)
    return refused(tx, account, f"{operation.noun}.refused", caller.origin(request.id, request.source), why)


def reply(context: Context, request: Request, scope: str, outcome: Answer | Refusal) -> Reply:
    refusal = outcome if isinstance(outcome, Refusal) else outcome.refusal
    event = None if isinstance(outcome, Refusal) else outcome.event
    headers: tuple[Header, ...] = (("gatepost-event", event),) if event else ()
    if refusal is not None:
        if refusal.status in (401, 403):
            needed = refusal.pointer if refusal.code == "insufficient_scope" else scope
            headers = (bearer.challenged(context, request, refusal, needed), *headers)
        return refuse(request.path, refusal, *headers)
    if isinstance(outcome, Refusal):
        raise TypeError(outcome.code)
    return json(outcome.status, outcome.body, NO_STORE, *headers)
