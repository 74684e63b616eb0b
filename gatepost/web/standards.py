"""Introspection, revocation and userinfo: RFC 7662, RFC 7009, OIDC Core 1.0 section 5.3."""

from collections.abc import Callable
from typing import Any

from gatepost.core.errors import Refusal
from gatepost.ledger.entries import Origin
from gatepost.oauth import client_authentication, introspection, revocation
from gatepost.oauth.client_authentication import AuthenticatedClient, ClientCredentials, RefusedRequest, refuse
from gatepost.store.transaction import SHORT, Tx
from gatepost.web import bearer
from gatepost.web.context import Context
from gatepost.web.requests import Request, form
from gatepost.web.responses import NO_STORE, Header, Reply, json, oauth_error
from gatepost.web.tokens import form_of_client, note_failed_authentication, refuse_client


async def introspect(context: Context, request: Request) -> Reply:
    """Reading is enough where a secret is shown. Other proofs are used up, and failures are counted."""
    read = _read(context, request)
    if isinstance(read, Reply):
        return read
    credentials, token = read

    def look(tx: Tx) -> tuple[AuthenticatedClient, dict[str, Any]] | None:
        authenticated = (
            client_authentication.authenticate_by_secret(tx, context.service, credentials)
            if isinstance(token, str)
            else None
        )
        if authenticated is None or not authenticated.is_valid(tx.at) or isinstance(token, Refusal):
            return None
        return authenticated, introspection.introspect(tx, context.service, authenticated, token)

    seen = await context.store.read(look, SHORT)
    if seen is not None:
        authenticated, told = seen
        context.note_use(authenticated.account.id, authenticated.by)
        return json(200, told, NO_STORE)
    found = await _as_client(
        context,
        request,
        credentials,
        token,
        lambda tx, authenticated, text: introspection.introspect(tx, context.service, authenticated, text),
    )
    return found if isinstance(found, Reply) else json(200, found, NO_STORE)


async def revoke(context: Context, request: Request) -> Reply:
    sent = form(request)
    token = "" if isinstance(sent, Refusal) else sent.get("token", [""])[0]
    if revocation.is_by_login_application(token):
        ended = await context.run(
            lambda tx: revocation.by_login_application(tx, context.service, token, request.id, request.source)
        )
        return oauth_error(ended) if isinstance(ended, Refusal) else json(200, {}, NO_STORE)
    read = _read(context, request)
    if isinstance(read, Reply):
        return read

    def give_back(tx: Tx, authenticated: AuthenticatedClient, text: str) -> dict[str, Any]:
        origin = Origin(authenticated.client.id, request.id, request.source)
        revocation.by_client(tx, context.service, authenticated, text, origin)
        return {}

    found = await _as_client(context, request, *read, give_back)
    return found if isinstance(found, Reply) else json(200, found, NO_STORE)


def _read(context: Context, request: Request) -> tuple[ClientCredentials, str | Refusal] | Reply:
    """Who asks, and about which token."""
    found = form_of_client(context, request)
    if isinstance(found, Reply):
        return found
    credentials, sent = found
    if isinstance(sent, Refusal):
        return credentials, sent
    missing = Refusal("invalid_request", "token: missing", "token")
    return credentials, sent["token"][0] if "token" in sent else missing


async def _as_client(
    context: Context, request: Request, credentials: ClientCredentials, token: str | Refusal,
    act: Callable[[Tx, AuthenticatedClient, str], dict[str, Any]],
) -> dict[str, Any] | Reply:  # fmt: skip
    endpoint = request.path.rpartition("/")[2]

    def unit(tx: Tx) -> tuple[AuthenticatedClient, dict[str, Any]] | RefusedRequest:
        origin = Origin(credentials.client, request.id, request.source)
        authenticated = client_authentication.authenticate(tx, context.service, credentials, origin)
        if isinstance(authenticated, Refusal):
            return RefusedRequest(authenticated, authenticated=False)
        checked = token
        if endpoint == "introspect" and authenticated.client.public:
            checked = Refusal("invalid_client", "introspection needs a client that authenticates")
        if isinstance(checked, Refusal):
            return refuse(tx, authenticated, checked, origin, "oauth.request.refused", {"at": endpoint})
        return authenticated, act(tx, authenticated, checked)

    outcome = await context.run(unit)
    if isinstance(outcome, RefusedRequest):
        if not outcome.authenticated:
            note_failed_authentication(request, outcome.refusal)
        event: tuple[Header, ...] = (("gatepost-event", outcome.event),) if outcome.event else ()
        return refuse_client(outcome.refusal, *event)
    authenticated, told = outcome
    context.note_use(authenticated.account.id, authenticated.by)
    return told


async def userinfo(context: Context, request: Request) -> Reply:
    sent = bearer.read_token(context, request)
    if sent is None:
        return bearer.unauthenticated(context, request, "openid")

    def unit(tx: Tx) -> dict[str, Any] | Refusal:
        return introspection.userinfo(tx, context.service, sent)

    outcome = await (context.store.read(unit, SHORT) if sent.proof is None else context.store.run(unit))
    if isinstance(outcome, Refusal):
        return oauth_error(outcome, bearer.challenged(context, request, outcome, "openid"))
    return json(200, outcome, NO_STORE)
