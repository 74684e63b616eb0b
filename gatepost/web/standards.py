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
from gatepost.web.responses import NO_STORE, Reply, json, oauth_error
from gatepost.web.tokens import read_client_form, refuse_client


async def introspect(context: Context, request: Request) -> Reply:
    """Answer an introspection request. RFC 7662, section 2.1.

    A client secret is checked without a commit. Other credentials are used up, and failures are counted.
    """
    parsed = _credentials_and_token(context, request)
    if isinstance(parsed, Reply):
        return parsed
    credentials, token = parsed

    def act(tx: Tx, client: AuthenticatedClient, text: str) -> dict[str, Any]:
        return introspection.introspect(tx, context.service, client, text)

    def read(tx: Tx) -> tuple[AuthenticatedClient, dict[str, Any]] | None:
        if isinstance(token, Refusal):
            return None
        client = client_authentication.authenticate_by_secret(tx, context.service, credentials)
        return (client, act(tx, client, token)) if client is not None else None

    answered = await context.store.read(read, SHORT)
    if answered is None:
        return await _as_client(context, request, credentials, token, act)
    return _reply(context, *answered)


async def revoke(context: Context, request: Request) -> Reply:
    """Answer a revocation request. RFC 7009, section 2.

    The login application sends a signed token instead of client credentials.
    """
    sent = form(request)
    token = "" if isinstance(sent, Refusal) else sent.get("token", [""])[0]
    if revocation.is_by_login_application(token):
        ended = await context.run(
            lambda tx: revocation.by_login_application(tx, context.service, token, request.id, request.source)
        )
        return oauth_error(ended) if isinstance(ended, Refusal) else json(200, {}, NO_STORE)
    parsed = _credentials_and_token(context, request)
    if isinstance(parsed, Reply):
        return parsed

    def act(tx: Tx, client: AuthenticatedClient, text: str) -> dict[str, Any]:
        revocation.by_client(tx, context.service, client, text, Origin(client.client.id, request.id, request.source))
        return {}

    return await _as_client(context, request, *parsed, act)


def _credentials_and_token(context: Context, request: Request) -> tuple[ClientCredentials, str | Refusal] | Reply:
    parsed = read_client_form(context, request)
    if isinstance(parsed, Reply):
        return parsed
    credentials, sent = parsed
    if isinstance(sent, Refusal):
        return credentials, sent
    return credentials, sent["token"][0] if "token" in sent else Refusal("invalid_request", "token: missing", "token")


async def _as_client(
    context: Context, request: Request, credentials: ClientCredentials, token: str | Refusal,
    act: Callable[[Tx, AuthenticatedClient, str], dict[str, Any]],
) -> Reply:  # fmt: skip
    """Authenticate the client and act on the token in one unit."""
    endpoint = request.path.rpartition("/")[2]

    def unit(tx: Tx) -> tuple[AuthenticatedClient, dict[str, Any]] | RefusedRequest:
        origin = Origin(credentials.client, request.id, request.source)
        client = client_authentication.authenticate(tx, context.service, credentials, origin)
        if isinstance(client, Refusal):
            return RefusedRequest(client, authenticated=False)
        if endpoint == "introspect" and client.client.public:
            refusal = Refusal("invalid_client", "introspection requires a client that authenticates")
        elif isinstance(token, Refusal):
            refusal = token
        else:
            return client, act(tx, client, token)
        return refuse(tx, client, refusal, origin, "oauth.request.refused", {"at": endpoint})

    outcome = await context.run(unit)
    return refuse_client(request, outcome) if isinstance(outcome, RefusedRequest) else _reply(context, *outcome)


def _reply(context: Context, client: AuthenticatedClient, body: dict[str, Any]) -> Reply:
    context.note_use(client.account.id, client.by)
    return json(200, body, NO_STORE)


async def userinfo(context: Context, request: Request) -> Reply:
    """Answer a userinfo request. OIDC Core 1.0, section 5.3."""
    token = bearer.read_token_in_form(context, request)
    if token is None:
        return bearer.unauthenticated(context, request, "openid")
    if isinstance(token, Refusal):
        return oauth_error(token, bearer.challenged(context, request, token, "openid"))

    def unit(tx: Tx) -> dict[str, Any] | Refusal:
        return introspection.userinfo(tx, context.service, token)

    outcome = await (context.store.read(unit, SHORT) if token.proof is None else context.store.run(unit))
    if not isinstance(outcome, Refusal):
        return json(200, outcome, NO_STORE)
    headers = [bearer.challenged(context, request, outcome, "openid")]
    if outcome.code == "insufficient_scope":  # the token is valid, so the refusal is recorded in its account
        event = await context.run(
            lambda tx: introspection.record_refusal(tx, context.service, token, outcome, request.id, request.source)
        )
        headers += [("gatepost-event", event)] if event else []
    return oauth_error(outcome, *headers)
